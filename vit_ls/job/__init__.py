"""The processes of a job: how they meet and compute, what ends them, and what they draw."""

from vit_ls.job.command import command_line, end_process, supervised
from vit_ls.job.precision import autocast, import_backends, mixes_precision, set_precision
from vit_ls.job.ranks import Ranks, join
from vit_ls.job.signals import StopRequests

__all__ = [
    "Ranks",
    "StopRequests",
    "autocast",
    "command_line",
    "end_process",
    "import_backends",
    "join",
    "mixes_precision",
    "set_precision",
    "supervised",
]
