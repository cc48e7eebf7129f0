"""What is measured of a run: sums of an epoch, and what passed between two log lines."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from vit_ls.job.ranks import Ranks
from vit_ls.run.state import Progress
from vit_ls.train.update import Outcome


class Sums:
    """Loss and gradient norms of an epoch; they stay on the device until someone asks for them.

    Args:
        at: What is summed up so far.
        device: Of the losses.
    """

    def __init__(self, at: Progress, device: torch.device) -> None:
        self._at = at
        start = [at.loss_sum, at.norm_sum, at.norms]
        self._sums = torch.tensor(start, dtype=torch.float64, device=device)

    def add(self, outcome: Outcome) -> None:
        """Add an update's loss and, where it is finite, its gradient norm."""
        norm = outcome.norm
        self._sums[0] += outcome.loss_sum
        if norm is not None:
            # float16 has infinite gradients now and then, which its scaler skips.
            self._sums[1] += norm.nan_to_num(0.0, 0.0, 0.0)
            self._sums[2] += norm.isfinite()

    def read(self) -> float:
        """Write the sums down where the run stands, and return that of the losses."""
        loss_sum, norm_sum, norms = self._sums.tolist()
        self._at.loss_sum, self._at.norm_sum, self._at.norms = loss_sum, norm_sum, int(norms)
        return float(loss_sum)


class Timed:
    """An iterator that knows how long it was waited for, and the last item."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self.stream, self.waited = stream, 0.0
        self.last: Any = None

    def __iter__(self) -> "Timed":
        return self

    def __next__(self) -> Any:
        """The next item."""
        started = time.perf_counter()
        try:
            self.last = next(self.stream)
        finally:
            self.waited += time.perf_counter() - started
        return self.last


class Interval:
    """Some updates of an epoch, from now on.

    Args:
        stream: The batches.
        at: Where the run stands.
        utilisation: The share of the device's peak that so many images per second are, if known.
    """

    def __init__(
        self, stream: Timed, at: Progress, utilisation: Callable[[float], float] | None = None
    ) -> None:
        self._used = utilisation
        self._stream, self._waited = stream, stream.waited
        self._loss_sum, self._images = at.loss_sum, at.images
        self._norm_sum, self._norms = at.norm_sum, at.norms
        self._started = time.perf_counter()

    def values(self, at: Progress, ranks: Ranks) -> dict[str, float]:
        """Mean loss and gradient norm, and what `timing` gives; all processes must call it."""
        sums = [at.loss_sum - self._loss_sum, at.images - self._images]
        loss_sum, images = ranks.total(torch.tensor(sums, dtype=torch.float64)).tolist()
        values = {"loss": loss_sum / max(images, 1)}
        if at.norms > self._norms:
            values["grad_norm"] = (at.norm_sum - self._norm_sum) / (at.norms - self._norms)
        return values | self.timing(at, ranks)

    def timing(self, at: Progress, ranks: Ranks) -> dict[str, float]:
        """Images per second of all processes, share of time spent waiting for data, memory.

        Of waiting and memory the largest of all processes, which must call it together.
        """
        seconds = max(time.perf_counter() - self._started, 1e-9)
        waited = (self._stream.waited - self._waited) / seconds
        mine = at.images - self._images, waited, _memory_gib(ranks.device)
        images, waits, memory = zip(*ranks.gather(mine), strict=True)
        values = {
            "images_s": sum(images) / seconds,
            "data_wait": max(waits),
            "memory_gib": max(memory),
        }
        if self._used is not None:
            values["mfu"] = self._used(values["images_s"] / ranks.world_size)
        return values


def _memory_gib(device: torch.device) -> float:
    """Peak memory of the device, or of the process where it computes on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    import resource  # not on every system that has a GPU

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def mean_norm(at: Progress) -> dict[str, float]:
    """The epoch's mean gradient norm, where it was computed."""
    return {"grad_norm": at.norm_sum / at.norms} if at.norms else {}
