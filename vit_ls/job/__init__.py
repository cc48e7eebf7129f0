"""The processes of a job: how they meet and compute, what ends them, and what they draw."""

from vit_ls.job.command import command_line, end_process, supervised
from vit_ls.job.precision import autocast, import_backends, mixes_precision, set_precision
from vit_ls.job.ranks import (
    LostRankError,
    Ranks,
    by_primary,
    device_named,
    in_contact,
    join,
    leave,
)
from vit_ls.job.signals import StopRequests

__all__ = [
    "LostRankError",
    "Ranks",
    "StopRequests",
    "autocast",
    "by_primary",
    "command_line",
    "device_named",
    "end_process",
    "import_backends",
    "in_contact",
    "join",
    "leave",
    "mixes_precision",
    "set_precision",
    "supervised",
]
