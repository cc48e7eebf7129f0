"""Requests to stop: SIGTERM, and SIGUSR1 as SLURM sends it before the time is up."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopRequests:
    """While entered, SIGTERM and SIGUSR1 set `requested` instead of ending the process."""

    signals = (signal.SIGTERM, signal.SIGUSR1)

    def __init__(self) -> None:
        self.requested = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "StopRequests":
        # Python lets only the main thread set handlers.
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
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

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
