"""The images: data sets, label checks, and the batches for training and evaluation."""

from vit_ls.data.datasets import (
    Images,
    checked_num_classes,
    open_images,
    open_splits,
)
from vit_ls.data.inputs import input_config
from vit_ls.data.loaders import TrainBatches, eval_loader, train_batches
from vit_ls.data.splits import warn_of_idle

__all__ = [
    "Images",
    "TrainBatches",
    "checked_num_classes",
    "eval_loader",
    "input_config",
    "open_images",
    "open_splits",
    "train_batches",
    "warn_of_idle",
]
