"""The processes that load images: they leave signals to their parent and never outlive it."""

import atexit
import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from vit_ls.data.augment import AugmentationError
from vit_ls.data.errors import DataError, UnreadableImageError
from vit_ls.job.signals import STOPPING, end_with_parent

_logger = logging.getLogger(__name__)
_OURS = (AugmentationError, DataError, UnreadableImageError)


class Supervised:
    """A loader whose processes are watched; to its users it is the loader itself.

    A signal to the whole job must reach the parent alone, which needs batches until it has saved.
    A process that hangs must not hang the parent. torch's own limit is not enough for that: while
    the parent fetches the memory of a batch from a process that is stopped, it waits for ever.
    What a process says of the data comes without its traceback.

    Args:
        loader: Has not started its processes yet; may have none.
        limit: Seconds after which a batch that does not come ends the processes, and with them the
            iteration, by torch's RuntimeError.
    """

    def __init__(self, loader: DataLoader[Any], limit: float) -> None:
        self.loader, self.limit = loader, limit
        self._since: float | None = None  # it is waited for a batch
        if loader.num_workers > 0:
            loader.worker_init_fn = _Start(loader.worker_init_fn)
            atexit.unregister(_end_all)
            atexit.register(_end_all)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet, where this is copied
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self.loader.num_workers == 0:
            yield from self.loader
            return
        done = threading.Event()
        threading.Thread(target=self._watch, args=(done,), daemon=True).start()
        try:
            self._since = time.monotonic()
            for batch in self.loader:
                self._since = None
                yield batch
                self._since = time.monotonic()
        except _OURS as error:
            raise type(error)(last_line(error)) from error
        finally:
            self._since = None
            done.set()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(min(self.limit / 4, 15.0)):
            since = self._since
            if since is not None and time.monotonic() - since > self.limit:
                _logger.error("no batch has come for %g seconds: ending the loading.", self.limit)
                _kill_all()
                return


def last_line(error: Exception) -> str:
    """The message; a loading process puts its traceback and the error's type before it."""
    kind = type(error)
    last = (str(error).strip().splitlines() or [kind.__name__])[-1]
    return last.removeprefix(f"{kind.__module__}.{kind.__qualname__}: ")


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
    _kill_all()


def _kill_all() -> None:
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()
