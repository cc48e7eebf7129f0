"""train.py for torchrun to restart: in each start, one process kills itself where it is told.

    torchrun --max-restarts 2 tests/restarting.py '[[1, "update", 3], [0, "joining", 1]]' FLAGS

After three updates of the first start process 1 dies; in the second start process 0 does, before it
joins. A node counts its restarts by itself: the list is that of the node.
"""

import json
import os
import signal
import sys
from typing import Any

import train
from vit_ls import job
from vit_ls.job import ranks
from vit_ls.train import Trainer

PLACES = {
    "joining": (ranks, "own_store"),
    "update": (Trainer, "_after_update"),
    "evaluation": (Trainer, "_check_stop"),
    "saving": (os, "replace"),
}


def die(rank: int, place: str, after: int) -> None:
    """Let this process kill itself, if it has that number, at the n-th pass of a place."""
    if int(os.environ["RANK"]) != rank:
        return
    owner, name = PLACES[place]
    real, left = getattr(owner, name), iter(range(after - 1))

    def watched(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(owner, name, watched)


def main() -> None:
    """Train, or die on the way."""
    start, deaths = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), json.loads(sys.argv[1])
    print(f"start {start} of process {os.environ['RANK']}", flush=True)  # noqa: T201
    if start < len(deaths):
        die(*deaths[start])
    train.main(sys.argv[2:])


if __name__ == "__main__":
    job.end_process(job.command_line("train.py", main))
