"""The signals that ask a run to stop, and how processes follow the one that started them."""

import ctypes
import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

# SIGTERM: SLURM, Kubernetes, torchrun. SIGUSR1: SLURM before the time is up. SIGINT: Ctrl-C.
STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_SAME_SECONDS = 1.0


def end_with_parent(number: signal.Signals) -> None:
    """Let this process get a signal when the one that started it ends; only Linux can do it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


class StopRequests:
    """While entered, the signals that ask for it set `requested` instead of ending the process.

    A second SIGINT ends the process at once: someone at a terminal does not want to wait. torchrun
    passes on what it gets, so one that follows within a second is the same one.
    """

    def __init__(self) -> None:
        self.requested = False
        self._former: dict[int, Any] = {}
        self._interrupted: float | None = None

    def __enter__(self) -> "StopRequests":
        # Python lets only the main thread set handlers.
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                self._former[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()

    def _request(self, number: int, _frame: FrameType | None) -> None:
        self.requested = True
        if number != signal.SIGINT:
            return
        now = time.monotonic()
        if self._interrupted is None:
            self._interrupted = now
        elif now - self._interrupted > _SAME_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
