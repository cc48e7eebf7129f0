"""Trains and evaluates a model that it is handed."""

from vit_ls.engine.backend import import_backends, set_precision
from vit_ls.engine.command import command_line, end_process, supervised
from vit_ls.engine.evaluate import Evaluation, check_evaluated, evaluate
from vit_ls.engine.models import check_compiler, prepared
from vit_ls.engine.ranks import Ranks, join
from vit_ls.engine.recipe import check_recipe, make_optimizer
from vit_ls.engine.results import check_reports, summarised
from vit_ls.engine.stopping import StopRequests
from vit_ls.engine.teacher import make_teacher
from vit_ls.engine.trainer import Best, Trainer
from vit_ls.engine.update import autocast, mixes_precision
from vit_ls.errors import (
    STOPPED_STATUS,
    CheckpointError,
    EngineError,
    RunFailedError,
    StoppedError,
)
from vit_ls.run import read_checkpoint

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
    "autocast",
    "check_compiler",
    "check_evaluated",
    "check_recipe",
    "check_reports",
    "command_line",
    "end_process",
    "evaluate",
    "import_backends",
    "join",
    "make_optimizer",
    "make_teacher",
    "mixes_precision",
    "prepared",
    "read_checkpoint",
    "set_precision",
    "summarised",
    "supervised",
]
