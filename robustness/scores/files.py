"""The files of scores: safetensors in float16, one beside the predictions of each cell.

A file says which predictions and weights it belongs to, so that scores of another model or subset
are found out. It has one entry of metadata: safetensors writes several in no fixed order.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from robustness.files import write_atomically
from vit_ls.config import ConfigError

Array = NDArray[Any]

SUFFIX = ".safetensors"
_CLASSIFIER = Path("scores") / f"classifier{SUFFIX}"


@dataclass(frozen=True)
class Owner:
    """What scores belong to.

    Attributes:
        benchmark: Name of the suite.
        cell: Of it.
        rule: How its answers are judged.
        weights: Digest of the model's.
        table: Digest of the cell's predictions.
    """

    benchmark: str
    cell: str
    rule: str
    weights: str
    table: str


class Found(NamedTuple):
    """Scores by their name, and what they belong to."""

    arrays: dict[str, Array]
    owner: Owner


def encode(arrays: Mapping[str, Array], owner: Owner) -> bytes:
    """The file's bytes; the same scores give the same bytes."""
    halves = {name: np.ascontiguousarray(array, np.float16) for name, array in arrays.items()}
    return save(halves, {"of": json.dumps(asdict(owner), sort_keys=True)})


def file_of(folder: Path, benchmark: str, cell: str) -> Path:
    """Where the scores of a cell lie under a report's folder."""
    return folder / "scores" / benchmark / f"{cell.replace('/', '_')}{SUFFIX}"


def read(file: Path) -> Found:
    """Scores and what they belong to.

    Raises:
        ConfigError: They are not there or damaged.
    """
    if not file.is_file():
        raise ConfigError(f"no scores {file}: run with --keep logits, features or both.")
    arrays, of = _content(file)
    try:
        return Found(arrays, Owner(**of))
    except TypeError as error:
        raise ConfigError(f"{file} is damaged: {error}") from error


def _content(file: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    try:
        with safe_open(file, "numpy") as content:
            of: dict[str, Any] = json.loads((content.metadata() or {})["of"])
            return {name: content.get_tensor(name) for name in content.keys()}, of  # noqa: SIM118
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ConfigError(f"{file} is damaged: {error}") from error


def read_of(folder: Path, expected: Owner) -> Found:
    """The scores of a cell of a run.

    Args:
        folder: Of the report.
        expected: What they must belong to; the rule may be any.

    Raises:
        ConfigError: They are not there, damaged, or of another model or subset.
    """
    file = file_of(folder, expected.benchmark, expected.cell)
    found = read(file)
    for part, what in (("weights", "model"), ("table", "run or subset"), ("benchmark", "suite"),
                       ("cell", "cell")):  # fmt: skip
        if getattr(found.owner, part) != getattr(expected, part):
            raise ConfigError(f"{file} holds scores of another {what} than the report beside it.")
    return found


def write_classifier(folder: Path, classifier: nn.Linear, weights: str) -> None:
    """Write the layer that makes logits of the features, in float32.

    Args:
        folder: Of the report.
        classifier: The layer.
        weights: Digest of the model's.
    """
    arrays = {"weight": classifier.weight.detach().float().cpu().numpy()}
    bias = classifier.bias
    arrays["bias"] = (
        np.zeros(classifier.out_features, np.float32)
        if bias is None
        else bias.detach().float().cpu().numpy()
    )
    content = save(arrays, {"of": json.dumps({"weights": weights})})
    write_atomically(folder / _CLASSIFIER, content)


def read_classifier(folder: Path, weights: str) -> tuple[Array, Array] | None:
    """Weight [classes, D] and bias of a run's classifier; None where they were not kept.

    Raises:
        ConfigError: They are damaged, or of another model.
    """
    file = folder / _CLASSIFIER
    if not file.is_file():
        return None
    arrays, of = _content(file)
    if of.get("weights") != weights or not {"weight", "bias"} <= arrays.keys():
        raise ConfigError(f"{file} is of another model than the report beside it.")
    return arrays["weight"], arrays["bias"]


def megabytes(images: int, width: int) -> float:
    """Size of the scores of so many images, with so many numbers each."""
    return images * width * 2 / 1e6
