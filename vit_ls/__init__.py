"""Vision backbones with long-short and composite slice attention, registered as timm models."""

from pathlib import Path
from typing import Any

from vit_ls import models
from vit_ls.blocks import fuse
from vit_ls.recording import Attention, record
from vit_ls.replace import CompositeSlice, LongShort, replace_attention, replaceable

__all__ = [
    "Attention",
    "CompositeSlice",
    "LongShort",
    "fuse",
    "load",
    "models",
    "record",
    "replace_attention",
    "replaceable",
]
__version__ = "0.2.0"


def load(path: str | Path, *, weights: str = "best") -> Any:
    """Load the model of a checkpoint of train.py, as its run built it, in eval mode.

    Args:
        path: The checkpoint.
        weights: "best" takes those that the run scored best with, "ema" the average, "raw" the
            weights themselves.

    Returns:
        The model. Its attribute `run` says the run's settings (`config`), classes, transform
        (`data_config`, for `timm.data.create_transform`), which weights it has, and the path.

    Raises:
        ValueError: The file is of no run, or has no such weights.
        RuntimeError: The file cannot be read, or does not fit.
    """
    from vit_ls.run import load as load_run  # the settings and the data are not for every import

    return load_run(path, weights=weights)
