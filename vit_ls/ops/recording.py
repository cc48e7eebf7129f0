"""Where ops hand over the attention weights that they compute, while somebody asks for them.

While `recording` is on in a thread, every op that it calls goes through explicit products in one
piece, which is the one implementation that has the weights at hand. Off, an op asks one list of its
thread whether it is empty.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["projection", "windows", "tokens"]
"""What weights are of: P of a dynamic projection [B,h,R,N]; windows with the keys in front of them
[B,h,N,T,E+K]; one set of queries over one set of keys [B,h,T,K]."""

Sink = Callable[[Kind, Tensor], None]


class _Sinks(threading.local):
    """Of each thread its own: what another thread computes is no business of a recording."""

    def __init__(self) -> None:
        self.now: list[Sink] = []


_sinks = _Sinks()


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Give all attention weights of this thread within a `with` block to `sink`, too."""
    _sinks.now.append(sink)
    try:
        yield
    finally:
        _sinks.now.remove(sink)


def is_recording() -> bool:
    """Whether somebody asks for weights; never in a graph, which outlives the asking."""
    return not torch.compiler.is_compiling() and bool(_sinks.now)


def hand_over(kind: Kind, weights: Tensor) -> None:
    """Give weights to whoever asks for them."""
    if is_recording():
        for sink in _sinks.now:
            sink(kind, weights)
