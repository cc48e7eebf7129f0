"""Exact evaluation: each image counts once, in any number of processes and any batch size."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from timm.task import evaluation_sample_limit
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from vit_ls.errors import RunFailedError
from vit_ls.job.ranks import Ranks


class PerImage(NamedTuple):
    """What a model said of each image, in the order of the data set.

    Attributes:
        predictions: Best classes [images, <= 5].
        targets: Labels [images]; -1 for an image that could not be read.
    """

    predictions: Tensor
    targets: Tensor


class Evaluation(NamedTuple):
    """The result of an evaluation.

    Attributes:
        metrics: loss (of the images that could be read), top1 and top5, these two in percent.
        images: Number of images.
        unreadable: Of these, how many could not be read; they count as wrong.
        images_per_second: Of all processes together, from the second batch on; None where there is
            no other.
        per_image: Only where it was asked for.
    """

    metrics: dict[str, float]
    images: int
    unreadable: int
    images_per_second: float | None
    per_image: PerImage | None = None


class Evaluator:
    """Counts on the device of the logits, which is waited for once, when the result is read.

    Args:
        device: Of the logits.
        limit: Images of this process; what comes after them was added to make processes even.
        per_image: Keep the best five classes of each image too.
    """

    def __init__(
        self, device: torch.device, *, limit: int | None = None, per_image: bool = False
    ) -> None:
        self.limit, self._keeps = limit, per_image
        self.seen = 0
        # Apple's GPUs have no float64; float32 counts up to 16 million.
        exact = torch.float32 if device.type == "mps" else torch.float64
        self._totals = torch.zeros(5, dtype=exact, device=device)
        self._predictions: list[Tensor] = []
        self._targets: list[Tensor] = []

    @torch.no_grad()
    def update(self, output: Tensor, target: Tensor) -> None:
        """Count logits [B, classes] and labels [B]; an image with label -1 counts as wrong."""
        if self.limit is not None:
            room = max(0, self.limit - self.seen)
            output, target = output[:room], target[:room]
        self.seen += len(target)
        output = output.float()
        best = output.topk(min(5, output.shape[-1]), dim=-1).indices
        hits = best == target[:, None]
        losses = cross_entropy(output, target, ignore_index=-1, reduction="sum")
        images, unreadable = torch.ones_like(target).sum(), (target < 0).sum()
        values = images, unreadable, hits[:, 0].sum(), hits.any(dim=-1).sum(), losses
        self._totals += torch.stack([value.to(self._totals.dtype) for value in values])
        if self._keeps:
            self._predictions.append(best)
            self._targets.append(target)

    def totals(self, ranks: Ranks) -> Tensor:
        """Images, unreadable ones, right, right among five, sum of losses: of all processes."""
        return ranks.total(self._totals.cpu())

    def per_image(self, ranks: Ranks) -> PerImage | None:
        """What was said of each image of all processes, where it was kept."""
        if not self._keeps:
            return None
        # A process may have no part of a stream.
        none = torch.empty(0, dtype=torch.long)
        mine = [torch.cat(kept or [none]).cpu() for kept in (self._predictions, self._targets)]
        parts = ranks.gather(mine)
        # Rank r evaluates images r, r + world_size, ...
        total = sum(len(target) for _, target in parts)
        if any(len(part[1]) != len(range(r, total, len(parts))) for r, part in enumerate(parts)):
            # Streams are dealt out otherwise, and have no order.
            return PerImage(*map(torch.cat, zip(*parts, strict=True)))
        predictions = torch.empty(total, parts[0][0].shape[-1], dtype=torch.long)
        targets = torch.empty(total, dtype=torch.long)
        for rank, (prediction, target) in enumerate(parts):
            predictions[rank :: len(parts)] = prediction
            targets[rank :: len(parts)] = target
        return PerImage(predictions, targets)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loader: Any,
    ranks: Ranks,
    autocast: AbstractContextManager[Any],
    *,
    channels_last: bool = False,
    per_image: bool = False,
    after_batch: Callable[[], None] | None = None,
) -> Evaluation:
    """Evaluate a model.

    Args:
        model: In any mode; it is left in evaluation mode.
        loader: Batches of images and labels, of this process.
        ranks: The processes.
        autocast: Context of the forward pass.
        channels_last: Memory layout of the images.
        per_image: Collect what the model says of each image.
        after_batch: Called after each batch, by all processes together; not where they may have
            different numbers of batches.
    """
    model.eval()
    limit = evaluation_sample_limit(loader)
    evaluator = Evaluator(ranks.device, limit=limit, per_image=per_image)
    started, warm = time.perf_counter(), 0
    for images, targets in loader:
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with autocast:
            output = model(images)
        output = output[0] if isinstance(output, tuple | list) else output
        first = not evaluator.seen
        evaluator.update(output, targets)
        if first:
            # It pays for starting the loader, for compiling and for tuning.
            _wait_for(ranks.device)
            started, warm = time.perf_counter(), len(targets)
        if after_batch is not None and (limit is not None or not ranks.distributed):
            after_batch()
    seconds = max(time.perf_counter() - started, 1e-9)
    count, unreadable, top1, top5, loss_sum = evaluator.totals(ranks).tolist()
    timed = ranks.total(torch.tensor([evaluator.seen - warm], dtype=torch.float64)).item()
    speed = timed / seconds if timed > 0 else None
    metrics = {
        "loss": loss_sum / max(count - unreadable, 1),
        "top1": 100 * top1 / max(count, 1),
        "top5": 100 * top5 / max(count, 1),
    }
    found = evaluator.per_image(ranks)
    return Evaluation(metrics, int(count), int(unreadable), speed, found)


def check_evaluated(result: Evaluation, split: str, max_unreadable: int) -> None:
    """Check that an evaluation is of enough images to say something.

    Args:
        result: The evaluation.
        split: Its name.
        max_unreadable: How many images may be unreadable, each counted as wrong.

    Raises:
        RunFailedError: There are none that can be read, or more that cannot.
    """
    if result.images == result.unreadable:
        why = f"none of its {result.images} images can be read" if result.images else "it is empty"
        raise RunFailedError(f"the split {split!r} cannot be evaluated on: {why}.")
    if result.unreadable > max_unreadable:
        raise RunFailedError(
            f"--max-unreadable {max_unreadable} is exceeded: {result.unreadable} of "
            f"{result.images} images of the split {split!r} cannot be read."
        )


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
