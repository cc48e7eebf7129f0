"""Exact evaluation: each image counts once, in any number of processes and any batch size."""

import time
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from timm.task import ClassificationEvaluator, evaluation_sample_limit
from torch import Tensor, nn

from vit_ls.engine.ranks import Ranks


class Evaluation(NamedTuple):
    """The result of an evaluation.

    Attributes:
        metrics: loss, top1 and top5, the latter two in percent.
        predictions: Best classes [images, <= 5], in the order of the data set.
        targets: Labels [images].
        images_per_second: Of all processes together.
    """

    metrics: dict[str, float]
    predictions: Tensor
    targets: Tensor
    images_per_second: float

    @property
    def unreadable(self) -> int:
        """Number of images that could not be read."""
        return int((self.targets < 0).sum())


class Evaluator(ClassificationEvaluator):
    """timm's exact evaluator, which keeps the best five classes of each image too.

    Args:
        device: Of the logits.
        limit: Images of this process; what comes after them was added to make processes even.
    """

    def __init__(self, device: torch.device, *, limit: int | None) -> None:
        self.limit = limit
        super().__init__(device)

    def reset(self) -> None:
        """Forget all images."""
        super().reset()
        self.predictions: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.seen = 0

    @torch.no_grad()
    def update(self, output: Tensor, target: Tensor) -> None:
        """Count logits [B, classes] and labels [B]; an image with label -1 counts as wrong."""
        if self.limit is not None:
            room = max(0, self.limit - self.seen)
            output, target = output[:room], target[:room]
        self.seen += len(target)
        best = output.float().topk(min(5, output.shape[-1]), dim=-1).indices
        self.predictions.append(best.cpu())
        self.targets.append(target.cpu())
        known = target >= 0
        super().update(output[known], target[known])
        self.counts[0] += len(target) - known.sum()

    def per_image(self, ranks: Ranks) -> tuple[Tensor, Tensor]:
        """Best classes [images, <= 5] and labels [images], in the order of the data set."""
        mine = torch.cat(self.predictions), torch.cat(self.targets)
        parts = ranks.gather(mine)
        # Rank r evaluates images r, r + world_size, ...
        total = sum(len(target) for _, target in parts)
        predictions = torch.empty(total, mine[0].shape[1], dtype=torch.long)
        targets = torch.empty(total, dtype=torch.long)
        for rank, (prediction, target) in enumerate(parts):
            predictions[rank :: len(parts)] = prediction
            targets[rank :: len(parts)] = target
        return predictions, targets


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loader: Any,
    ranks: Ranks,
    autocast: AbstractContextManager[Any],
    *,
    channels_last: bool = False,
) -> Evaluation:
    """Evaluate a model.

    Args:
        model: In any mode; it is left in evaluation mode.
        loader: Batches of images and labels, of this process.
        ranks: The processes.
        autocast: Context of the forward pass.
        channels_last: Memory layout of the images.
    """
    model.eval()
    evaluator = Evaluator(ranks.device, limit=evaluation_sample_limit(loader))
    started, warm = time.perf_counter(), 0
    for images, targets in loader:
        if channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        with autocast:
            output = model(images)
        output = output[0] if isinstance(output, tuple | list) else output
        if not evaluator.seen:
            # The first batch pays for starting the loader, for compiling and for tuning.
            started, warm = time.perf_counter(), len(targets)
        evaluator.update(output, targets)
    metrics = evaluator.compute(distributed=ranks.distributed)
    timed = max(evaluator.seen - warm, 0) * ranks.world_size
    speed = timed / max(time.perf_counter() - started, 1e-9)
    return Evaluation(dict(metrics), *evaluator.per_image(ranks), speed)
