"""What a measurement was made on, to stand in front of its numbers."""

import datetime
import platform
from pathlib import Path

import torch


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
