"""What is in a file of weights, and which models take it.

    python -m vit_ls.weights FILE

Reads `.safetensors`, and what `torch.load(weights_only=True)` reads: no code in a file is ever run.
Exit status: 0 some model takes it, 1 none does, 2 it cannot be read.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor

import vit_ls  # noqa: F401 - registers the models
from vit_ls import engine
from vit_ls.boundary import blamed_on
from vit_ls.config import ConfigError
from vit_ls.models.convert import Fit, fit
from vit_ls.models.names import Named, under_our_names


class Candidate(NamedTuple):
    """A model, and how a file fits it."""

    call: str
    """Its name, with the argument that makes it."""
    how: Fit


def read_file(path: Path) -> dict[str, Any]:
    """The content of a file, of which no code is run.

    Raises:
        ConfigError: it is not there, damaged, holds no tensors, or more than tensors and plain
            values.
    """
    if not path.is_file():
        raise ConfigError(f"{path} cannot be read: no such file.")
    # A damaged or foreign file raises whatever the part of it raises that is read first.
    with blamed_on(f"{path} cannot be read without running code", ConfigError):
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping) or not _tensors(under_our_names(content)):
        raise ConfigError(f"{path} must hold named tensors, got {type(content).__name__}.")
    return dict(content)


def candidates(content: Mapping[str, Any]) -> Iterator[Candidate]:
    """Every model of this package, with as many classes as the file has, and how the file fits.

    Args:
        content: Of the file.
    """
    head = under_our_names(content).tensors.get("head.fc.weight")
    classes = 1000 if head is None else int(head.shape[0])
    for name in timm.list_models():
        module = timm.model_entrypoint(name).__module__
        if not module.startswith("vit_ls."):
            continue
        forms = ("relative", "absolute") if module == "vit_ls.models.vil" else (None,)
        for form in forms:
            options: dict[str, Any] = {} if form is None else {"position": form}
            model = timm.create_model(
                name,
                device="meta",
                num_classes=classes,
                pretrained_cfg_overlay={"num_classes": classes},
                **options,
            )
            inside = "" if form is None else f'(position="{form}")'
            yield Candidate(name + inside, fit(content, model))


def _tensors(named: Named) -> dict[str, Tensor]:
    return {key: value for key, value in named.tensors.items() if isinstance(value, Tensor)}


def _described(path: Path, content: Mapping[str, Any]) -> str:
    named = under_our_names(content)
    tensors = _tensors(named)
    millions = sum(value.numel() for value in tensors.values()) / 1e6
    head = tensors.get("head.fc.weight")
    classes = "no classifier" if head is None else f"{head.shape[0]} classes"
    return f"{path}: {named.title}, {len(tensors)} tensors of {millions:.2f} M numbers, {classes}"


def main(argv: Sequence[str] | None = None) -> None:
    """Describe one file."""
    parser = argparse.ArgumentParser("vit_ls.weights", description="Which models take a file?")
    parser.add_argument("file", type=Path, help="of weights; no code in it is run")
    path = parser.parse_args(argv).file
    content = read_file(path)
    sys.stdout.write(f"{_described(path, content)}\n")
    every = list(candidates(content))
    found = [one for one in every if not one.how.problems]
    for whole, heading in ((True, "loads into"), (False, "starts, for training")):
        for call, how in found:
            if how.whole == whole:
                sys.stdout.write(f"{heading} {call}: {how.counts()}\n")
    if not found:
        call, how = min(every, key=lambda one: one.how.problems)
        raise engine.RunFailedError(f"no model takes it; the nearest, {call}: {how.complaint()}")


if __name__ == "__main__":
    sys.exit(engine.command_line("vit_ls.weights", main))
