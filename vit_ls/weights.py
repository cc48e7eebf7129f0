"""What is in a file of weights, and which models take it.

    python -m vit_ls.weights FILE

Reads what train.py, validate.py and the others read, by the same functions; no code in a file is
ever run. Exit status: 0 some model takes it, 1 none does, 2 it cannot be read.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import timm

import vit_ls  # noqa: F401 - registers the models
from vit_ls import errors, job
from vit_ls.config import WEIGHTS, WEIGHTS_HELP, ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.models.convert import Fit, fit
from vit_ls.models.names import Named, under_our_names
from vit_ls.run import check_weights_file, read_weights, which_weights


class Candidate(NamedTuple):
    """A model, and how a file fits it."""

    call: str
    """Its name, with the argument that makes it."""
    how: Fit


def candidates(content: Mapping[str, Any]) -> Iterator[Candidate]:
    """Every model of this package, with as many classes as the file has, and how the file fits.

    Args:
        content: The tensors of the file.
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


def _described(path: Path, which: str, named: Named) -> str:
    millions = sum(value.numel() for value in named.tensors.values()) / 1e6
    head = named.tensors.get("head.fc.weight")
    classes = "no classifier" if head is None else f"{head.shape[0]} classes"
    return (
        f"{path}: {named.title}, {which} weights, {len(named.tensors)} tensors of {millions:.2f} M "
        f"numbers, {classes}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Describe one file."""
    parser = argparse.ArgumentParser("vit_ls.weights", description="Which models take a file?")
    parser.add_argument("file", type=Path, help="of weights; no code in it is run")
    parser.add_argument("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    args = parser.parse_args(argv)
    path: Path = args.file
    check_weights_file("FILE", path)
    try:
        which = which_weights(path, args.weights)
        content = read_weights(path, which)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    sys.stdout.write(f"{_described(path, which, under_our_names(content))}\n")
    every = list(candidates(content))
    found = [one for one in every if not one.how.problems]
    for whole, heading in ((True, "loads into"), (False, "starts, for training")):
        for call, how in found:
            if how.whole == whole:
                sys.stdout.write(f"{heading} {call}: {how.counts()}\n")
    if not found:
        call, how = min(every, key=lambda one: one.how.problems)
        raise errors.RunFailedError(f"no model takes it; the nearest, {call}: {how.complaint()}")


if __name__ == "__main__":
    sys.exit(job.command_line("vit_ls.weights", main))
