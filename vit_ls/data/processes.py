"""The processes that load images: they leave signals to their parent and never outlive it."""

import atexit
import multiprocessing
import signal
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from vit_ls.signals import STOPPING, end_with_parent


def supervise(loader: DataLoader[Any], timeout: float) -> None:
    """Prepare the processes of a loader, before it starts them.

    A signal to the whole job must reach the parent alone, which still needs batches until it has
    saved; and a process that hangs must not hang the parent, while it loads or at its end.

    Args:
        loader: May have no processes.
        timeout: Seconds after which a batch that does not come is an error.
    """
    if loader.num_workers == 0:
        return
    loader.timeout = timeout
    loader.worker_init_fn = _Start(loader.worker_init_fn)
    atexit.unregister(_end_all)
    atexit.register(_end_all)


class _Start:
    """What a loading process does first."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self.then = then

    def __call__(self, worker: int) -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        end_with_parent(signal.SIGKILL)
        if self.then is not None:
            self.then(worker)


def _end_all() -> None:
    """End what is left at exit: multiprocessing would send SIGTERM, and wait for ever.

    It comes after torch's own end of its loaders, which has given up on these by then.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would raise an error
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()
