"""Where the processes of one start of a job meet: a store that no earlier start has written to.

torchrun keeps one store for all starts of a job. What the processes of an earlier start left in it,
the next ones take for their own: gloo connects to addresses where nobody listens any more, and
NCCL's watchdog reads of errors that are long past, below any prefix (`globalStore_` in torch's
ProcessGroupNCCL.cpp). TORCHELASTIC_RESTART_COUNT does not tell the starts apart: each node counts
for itself, and only those of its own failures (`_invoke_run` in torch's elastic agent).
"""

import datetime
import functools
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.distributed import DistNetworkError, TCPStore

from vit_ls.errors import StoppedError

_Value = TypeVar("_Value")
_Waited = Callable[[Callable[[], Any]], Any]

_POLL_SECONDS = 0.05
_NAMED = 8  # of the processes that have not come
_CALL = "vit_ls/call"  # of the newest start: its token, and the port of its store
_THERE = "there"


class MeetingError(Exception):
    """The processes of a job have not met; the message says who is missing."""


@dataclass(frozen=True)
class Patience:
    """How long a process waits for others.

    Attributes:
        seconds: For each of the steps: to meet, and to connect.
        stopped: Whether a signal has asked it to stop.
    """

    seconds: float
    stopped: Callable[[], bool] = lambda: False

    def ends(self, started: float) -> bool:
        """Whether the time is over since `started`.

        Raises:
            StoppedError: A signal has asked to stop.
        """
        if self.stopped():
            raise StoppedError("stopped as asked, before the processes had joined.")
        return time.monotonic() - started > self.seconds


def own_store(rank: int, world_size: int, patience: Patience) -> Any:
    """A store of this start of the job alone, once all its processes are there.

    The primary hosts it. It calls the others through the store that the launcher names; each
    answers with a word that it has just made up, and trusts only a call that returns this word.

    Args:
        rank: Number of this process.
        world_size: Number of all.
        patience: How long to wait for all of it.

    Raises:
        StoppedError: A signal has asked to stop.
        MeetingError: A process has not come, or there is no store to meet at.
        RuntimeError: A store cannot be used.
    """
    started = time.monotonic()
    limit = datetime.timedelta(seconds=patience.seconds)
    host, port = _address()
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun's agent
    open_store = functools.partial(TCPStore, host, wait_for_workers=False, timeout=limit)
    waited = functools.partial(_waited, patience, started)
    hosts, nobody = rank == 0 and not hosted, f"no store answers at {host}:{port}"
    try:
        shared = within(patience, lambda: open_store(port, is_master=hosts), nobody)
    except DistNetworkError as error:
        if hosts:  # the port is taken
            raise
        # torch's own limit, which is the same, was a moment sooner
        raise MeetingError(nobody) from error
    if rank > 0:
        own = open_store(_answer(shared, rank, waited), is_master=False)
        own.add(_THERE, 1)
        return own
    own = open_store(0, is_master=True)
    _gather(shared, own.port, world_size, waited)
    # The other store may end with this function, when they have no need of it any more.
    if not waited(lambda: own.add(_THERE, 0) == world_size - 1 or None):
        raise MeetingError("a process was lost on its way")
    return own


def within(patience: Patience, call: Callable[[], _Value], otherwise: str) -> _Value:
    """What a call returns that may never return: C++ code of torch's outlasts its own timeouts.

    Args:
        patience: How long to wait for it.
        call: It is left behind, in a thread of its own, when the time is over.
        otherwise: The message then.

    Raises:
        StoppedError: A signal has asked to stop.
        MeetingError: The time is over.
        Exception: Whatever the call raises.
    """
    results: list[_Value] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # raised again below
            errors.append(error)

    thread, started = threading.Thread(target=run, daemon=True), time.monotonic()
    thread.start()
    while thread.is_alive():
        if patience.ends(started):
            raise MeetingError(otherwise)
        thread.join(_POLL_SECONDS)
    if errors:
        raise errors[0]
    return results[0]


def _address() -> tuple[str, int]:
    """Where the launcher says to meet."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise MeetingError("MASTER_ADDR and MASTER_PORT do not say where to meet")
    return host, int(port)


def _gather(shared: Any, port: int, world_size: int, waited: _Waited) -> None:
    """Call the others, and tell them when all have answered."""
    token = uuid.uuid4().hex
    others = range(1, world_size)
    shared.set(_CALL, json.dumps([token, port]))

    def missing() -> list[int]:
        return [other for other in others if not shared.check([f"{token}/{other}"])]

    if not waited(lambda: not missing() or None):
        late = missing()
        more = f" and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
        raise MeetingError(f"no word of process {', '.join(map(str, late[:_NAMED]))}{more}")
    words = {other: _read(shared, f"{token}/{other}") for other in others}
    shared.set(f"{token}/all", json.dumps(words))


def _answer(shared: Any, rank: int, waited: _Waited) -> int:
    """Answer the primary's call; returns the port of its store."""
    word = uuid.uuid4().hex
    answered = set()

    def accepted() -> int | None:
        call = _read(shared, _CALL)
        if call is None:
            return None
        token, port = json.loads(call)
        if token not in answered:
            answered.add(token)
            shared.set(f"{token}/{rank}", word)
        present = _read(shared, f"{token}/all")
        return int(port) if present and json.loads(present).get(str(rank)) == word else None

    port = waited(accepted)
    if port is None:
        raise MeetingError("no word of process 0, which may wait for another one")
    return port


def _read(store: Any, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def _waited(
    patience: Patience, started: float, attempt: Callable[[], _Value | None]
) -> _Value | None:
    """What an attempt returns as soon as that is something; None where it never was in time."""
    while (value := attempt()) is None:
        if patience.ends(started):
            return None
        time.sleep(_POLL_SECONDS)
    return value
