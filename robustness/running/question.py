"""What a report is the answer to: the folder of one question is never another one's."""

import json
from pathlib import Path
from typing import Any

import torch

from robustness.data.listing import digest
from robustness.errors import shown
from robustness.files import write_atomically
from robustness.running.plan import Request
from robustness.running.subject import Subject
from vit_ls.config import ConfigError

FILE = "question.json"
"""Stands beside the report from the first moment on, so that a run that ended can go on."""


def asked_of(subject: Subject, request: Request, dtype: torch.dtype) -> dict[str, Any]:
    """All that the user chose and that may change a number, as plain values."""
    places = request.places
    sources = {row.name: places.source(row) for row in request.benchmarks}
    return {
        "model": subject.identity,
        "dtype": str(dtype).removeprefix("torch."),
        "suites": {row.name: digest([repr(row)])[:16] for row in request.benchmarks},
        "folders": {
            name: shown(str(source.folder.absolute())) for name, source in sources.items() if source
        },
        "max_images": request.max_images,
        "verify": request.verify,
        "generate": places.generate,
        "generator": places.generator.identity,
        "attacks": [attack.identity for attack in request.attacks],
    }


def claim(folder: Path, question: dict[str, Any], *, overwrite: bool) -> None:
    """Take a folder for a question, where no other one has it.

    Raises:
        ConfigError: The report there answers another question, or nothing says which one.
    """
    file = folder / FILE
    asked = json.loads(json.dumps(question))
    if not overwrite:
        there = _read(file)
        if there is None and (folder / "report.json").exists():
            raise _taken(folder, "a report, and nothing says of what")
        differ = sorted(key for key in asked if there is not None and there.get(key) != asked[key])
        if differ:
            raise _taken(folder, f"the report of another run (other {', '.join(differ)})")
    write_atomically(file, (json.dumps(asked, indent=1) + "\n").encode())


def _taken(folder: Path, what: str) -> ConfigError:
    return ConfigError(f"--output {folder} holds {what}: name another folder, or give --overwrite.")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _taken(file.parent, f"a {FILE} that cannot be read") from error
    if not isinstance(found, dict):
        raise _taken(file.parent, f"a {FILE} that cannot be read")
    return found
