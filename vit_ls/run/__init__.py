"""A run on disk: its folder, its checkpoints, which weights of a file, what built them."""

from vit_ls.run.building import (
    check_compiler,
    check_model_name,
    create,
    made,
    make_model,
    prepared,
    warn_of_idle,
)
from vit_ls.run.checkpoint import read_checkpoint
from vit_ls.run.classes import check_all_classes, check_classifier, labels_to_use
from vit_ls.run.files import check_weights_file, read_file
from vit_ls.run.loading import built_from, load_weights, named_by, read_weights
from vit_ls.run.rebuilding import Run, as_trained, built, load
from vit_ls.run.weights import class_names, run_settings, scores, which_weights

__all__ = [
    "Run",
    "as_trained",
    "built",
    "built_from",
    "check_all_classes",
    "check_classifier",
    "check_compiler",
    "check_model_name",
    "check_weights_file",
    "class_names",
    "create",
    "labels_to_use",
    "load",
    "load_weights",
    "made",
    "make_model",
    "named_by",
    "prepared",
    "read_checkpoint",
    "read_file",
    "read_weights",
    "run_settings",
    "scores",
    "warn_of_idle",
    "which_weights",
]
