"""What validate.py reports of an evaluation."""

import csv
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from vit_ls.config import ConfigError, ValidateConfig
from vit_ls.engine.evaluate import Evaluation, PerImage


def summarised(
    result: Evaluation,
    config: ValidateConfig,
    class_to_idx: dict[str, int] | None,
    file_names: Callable[[], list[str]],
) -> dict[str, Any]:
    """The line that reports an evaluation; writes the CSV files that were asked for.

    Args:
        result: The evaluation, with its images where the configuration needs them.
        config: Says what is wanted.
        class_to_idx: Names of the classes, where the data set knows them.
        file_names: Returns the images' file names, in order; called for ReaL labels alone.
    """
    row: dict[str, Any] = {
        "images": result.images,
        **{f"val_{name}": f"{value:.3f}" for name, value in result.metrics.items()},
    }
    if result.unreadable:
        row["unreadable"] = result.unreadable
    if config.real_labels:
        assert result.per_image is not None
        top1, top5 = real_accuracy(result.per_image, file_names(), config.real_labels)
        row |= {"real_top1": f"{top1:.3f}", "real_top5": f"{top5:.3f}"}
    row["images_s"] = f"{result.images_per_second:.1f}"
    if config.per_class:
        assert result.per_image is not None
        rows = per_class(result.per_image, class_to_idx)
        _write_rows(Path(config.per_class), rows, append=False)
    if config.results_file:
        named = {"model": config.model, "checkpoint": config.checkpoint, **row}
        _write_rows(Path(config.results_file), [named], append=True)
    return row


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


def real_accuracy(result: PerImage, names: list[str], labels: str) -> tuple[float, float]:
    """Top-1 and top-5 on the reassessed labels (arXiv:2006.07159).

    An image is right where the prediction is among its labels; images without one are left out.

    Args:
        result: Of an evaluation on ImageNet's validation images.
        names: Their file names, which carry their numbers.
        labels: JSON file with a list of labels per image, or "builtin" for the one that timm has.
    """
    if labels == "builtin":
        source = resources.files("timm.data") / "_info" / "imagenet_real_labels.json"
        text = source.read_text(encoding="utf-8")
    elif Path(labels).is_file():
        text = Path(labels).read_text(encoding="utf-8")
    else:
        raise ConfigError(f"--real-labels {labels}: no such file.")
    real = json.loads(text)
    try:
        wanted = [real[int(Path(name).stem.rpartition("_")[2]) - 1] for name in names]
    except (ValueError, IndexError) as error:
        raise ConfigError("--real-labels needs ImageNet's validation images.") from error
    hits = [
        [guess in right for guess in guesses]
        for guesses, right in zip(result.predictions.tolist(), wanted, strict=True)
        if right
    ]
    table = torch.tensor(hits, dtype=torch.double)
    return 100 * table[:, 0].mean().item(), 100 * table.amax(1).mean().item()


def _write_rows(path: Path, rows: list[dict[str, Any]], *, append: bool) -> None:
    try:
        new = not append or not path.exists()
        with path.open("a" if append else "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            if new:
                writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
