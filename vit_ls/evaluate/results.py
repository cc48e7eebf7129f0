"""What validate.py reports of an evaluation."""

import csv
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timm.data import RealLabelsImagenet

from vit_ls.config import ConfigError, ValidateConfig
from vit_ls.errors import CheckpointError
from vit_ls.evaluate.counting import Evaluation, PerImage
from vit_ls.run.folder import write_rows

_logger = logging.getLogger(__name__)


def summarised(
    result: Evaluation,
    config: ValidateConfig,
    about: dict[str, Any],
    class_to_idx: dict[str, int] | None,
    real_labels: list[list[int]] | None = None,
) -> dict[str, Any]:
    """The line that reports an evaluation; writes the CSV files that were asked for.

    Args:
        result: The evaluation, with its images where the configuration needs them.
        config: Says what is wanted.
        about: What was evaluated, and how: the model, the size, which weights, the precision.
        class_to_idx: Names of the classes, where the data set knows them.
        real_labels: Of `real_labels_of` the images, where they are asked for.
    """
    row: dict[str, Any] = {
        **about,
        "images": result.images,
        **{f"val_{name}": f"{value:.3f}" for name, value in result.metrics.items()},
    }
    if result.unreadable:
        row["unreadable"] = result.unreadable
    if real_labels is not None:
        assert result.per_image is not None
        top1, top5 = real_accuracy(result.per_image, real_labels)
        row |= {"real_top1": f"{top1:.3f}", "real_top5": f"{top5:.3f}"}
    if result.images_per_second is None:
        _logger.info("images_s is left out: it is measured from the second batch on.")
    else:
        row["images_s"] = f"{result.images_per_second:.1f}"
    if config.per_class:
        assert result.per_image is not None
        rows = per_class(result.per_image, class_to_idx)
        _write_rows(Path(config.per_class), rows)
    if config.results_file:
        file = config.checkpoint or config.pretrained_path or ""
        _append(Path(config.results_file), {"model": config.model, "checkpoint": file, **row})
    return row


def check_reports(config: ValidateConfig) -> None:
    """Raise ConfigError for ReaL labels or a report that would fail after the evaluation."""
    if config.real_labels:
        _read_real_labels(config.real_labels)
    for flag, name in (("--per-class", config.per_class), ("--results-file", config.results_file)):
        path = Path(name)
        if name and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise ConfigError(f"{flag} {name} cannot be written: no such folder, or not writable.")
    if config.results_file:
        _rows_of(Path(config.results_file))


def per_class(result: PerImage, class_to_idx: dict[str, int] | None) -> list[dict[str, Any]]:
    """Accuracy of each class that has images."""
    names = {index: name for name, index in (class_to_idx or {}).items()}
    hits = result.predictions[:, 0] == result.targets
    rows = []
    for label in result.targets.unique().tolist():
        of_class = hits[result.targets == label]
        rows.append(
            {
                "class": label,
                "name": names.get(label, "" if label >= 0 else "unreadable"),
                "images": len(of_class),
                "top1": f"{100 * of_class.double().mean().item():.3f}",
            }
        )
    return rows


def real_labels_of(names: Callable[[], list[str]], labels: str) -> list[list[int]]:
    """The reassessed labels of ImageNet's validation images (arXiv:2006.07159).

    Args:
        names: Returns the images' file names, in order; they carry the images' numbers.
        labels: JSON file with a list of labels per image, or "builtin" for the one that timm has.

    Raises:
        ConfigError: The file is none, or the images are others; known before an evaluation.
    """
    by_number = dict(enumerate(_read_real_labels(labels), 1))
    try:
        numbers = [int(Path(name).stem.rpartition("_")[2]) for name in names()]
        return [by_number[number] for number in numbers]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"--real-labels needs ImageNet's validation images: {error}") from error


def real_accuracy(result: PerImage, labels: list[list[int]]) -> tuple[float, float]:
    """Top-1 and top-5 on reassessed labels, of the images that have any.

    An image is right where the prediction is among its labels.
    """
    hits = [
        [guess in right for guess in guesses]
        for guesses, right in zip(result.predictions.tolist(), labels, strict=True)
        if right
    ]
    table = torch.tensor(hits, dtype=torch.double)
    return 100 * table[:, 0].mean().item(), 100 * table.amax(1).mean().item()


def _read_real_labels(labels: str) -> list[list[int]]:
    if labels == "builtin":
        return list(RealLabelsImagenet(range(50_000)).real_labels.values())
    try:
        real = json.loads(Path(labels).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--real-labels {labels}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--real-labels {labels}: not JSON: {error}.") from error
    if not isinstance(real, list) or not all(
        isinstance(some, list) and all(type(one) is int for one in some) for some in real
    ):
        raise ConfigError(f"--real-labels {labels}: must hold a list of labels for each image.")
    return real


def _rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of results, none where there is no file yet."""
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows, columns = list(reader), reader.fieldnames or []
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, csv.Error):
        rows, columns = [], [""]
    broken = any(None in row or None in row.values() for row in rows)
    if broken or (columns and "model" not in columns):
        raise ConfigError(f"{path} is no file of results: it would not be appended to but lost.")
    return rows


def _append(path: Path, row: dict[str, Any]) -> None:
    """Add a row; a file that lacks one of its columns is written anew."""
    rows = _rows_of(path)
    if not rows or row.keys() - rows[0].keys():
        _write_rows(path, [*rows, row])
        return
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, list(rows[0])).writerow(row)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        write_rows(path, rows)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
