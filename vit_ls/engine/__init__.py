"""Trains and evaluates a model that it is handed."""

from vit_ls.engine.backend import import_backends, set_precision
from vit_ls.engine.checkpoint import read_checkpoint
from vit_ls.engine.classes import check_all_classes, check_classifier, labels_to_use
from vit_ls.engine.command import command_line, end_process, supervised
from vit_ls.engine.errors import (
    STOPPED_STATUS,
    CheckpointError,
    EngineError,
    RunFailedError,
    StoppedError,
)
from vit_ls.engine.evaluate import Evaluation, evaluate
from vit_ls.engine.models import (
    check_compiler,
    check_model_name,
    make_model,
    prepared,
)
from vit_ls.engine.of_run import as_trained
from vit_ls.engine.ranks import Ranks, join
from vit_ls.engine.recipe import check_recipe, make_optimizer
from vit_ls.engine.results import check_reports, summarised
from vit_ls.engine.stopping import StopRequests
from vit_ls.engine.teacher import make_teacher
from vit_ls.engine.trainer import Best, Trainer
from vit_ls.engine.update import autocast, mixes_precision
from vit_ls.engine.weights import (
    check_weights_file,
    class_names,
    fitted,
    load_weights,
    run_settings,
    scores,
)

__all__ = [
    "STOPPED_STATUS",
    "Best",
    "CheckpointError",
    "EngineError",
    "Evaluation",
    "Ranks",
    "RunFailedError",
    "StopRequests",
    "StoppedError",
    "Trainer",
    "as_trained",
    "autocast",
    "check_all_classes",
    "check_classifier",
    "check_compiler",
    "check_model_name",
    "check_recipe",
    "check_reports",
    "check_weights_file",
    "class_names",
    "command_line",
    "end_process",
    "evaluate",
    "fitted",
    "import_backends",
    "join",
    "labels_to_use",
    "load_weights",
    "make_model",
    "make_optimizer",
    "make_teacher",
    "mixes_precision",
    "prepared",
    "read_checkpoint",
    "run_settings",
    "scores",
    "set_precision",
    "summarised",
    "supervised",
]
