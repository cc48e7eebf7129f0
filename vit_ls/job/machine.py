"""What a measurement or a run was made on, to stand in front of its numbers."""

import datetime
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torchvision", "timm", "numpy", "pillow")


def machine(device: str) -> list[tuple[str, str]]:
    """The processor, torch and the date, as rows of a CSV file."""
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if device == "cuda":
        name = torch.cuda.get_device_name()
    elif cpu.is_file():
        lines = cpu.read_text().splitlines()
        name = next((x.split(": ")[1] for x in lines if x.startswith("model name")), name)
        name += f" ({torch.backends.cpu.get_cpu_capability()})"
    return [
        ("# machine", name),
        ("# torch", torch.__version__),
        ("# date", datetime.datetime.now(datetime.UTC).date().isoformat()),
    ]


def provenance(device: torch.device) -> dict[str, Any]:
    """What a program runs as, and on: time, command, versions, hardware and the checkout's state.

    Args:
        device: That it computes on.
    """
    versions = {
        "vit_ls": sys.modules["vit_ls"].__version__,  # of the checkout, which need not be installed
        "python": platform.python_version(),
        "torch": torch.__version__,
    } | {name: metadata.version(name) for name in _PACKAGES}
    made_on = dict(machine(device.type))
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": [*sys.orig_argv],
        "versions": versions,
        "hardware": {
            "host": platform.node(),
            "device": made_on["# machine"],
            "cpus": os.cpu_count(),
            "gpus": torch.cuda.device_count(),
        },
        "git": _checkout(),
    }


def _checkout() -> dict[str, Any] | None:
    """Commit of the checkout that this code lies in, and whether files in it were changed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", str(root), *words],
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):  # no git here, or none that may read it
        return None
    return {"commit": commit.strip(), "changed": bool(changes.strip())}
