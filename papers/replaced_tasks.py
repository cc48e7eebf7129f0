"""What the small ViTs of `papers.replaced` learn: the digits, and to mark digits on a canvas."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from papers.ablations import read_digits

CELLS, CLASSES = 6, 3
"""Of a canvas, on a side, and of its digits."""

Batch = tuple[Tensor, Tensor]


class Task(NamedTuple):
    """What a model learns."""

    side: int
    """Of an image, in pixels."""
    patch: int
    outputs: int
    epochs: int
    """That the original is trained for."""
    batches: Callable[[torch.Generator], Iterator[Batch]]
    """Of one epoch."""
    held_out: Callable[[], Batch]
    loss: Callable[[Tensor, Tensor], Tensor]
    accuracy: Callable[[Tensor, Tensor], float]
    pool: str


@cache
def _digits(side: int, *, held_out: bool) -> Batch:
    images, labels = read_digits(held_out=held_out)
    return F.interpolate(images[:, :1], (side, side), mode="bilinear", antialias=True), labels


def _digit_batches(generator: torch.Generator) -> Iterator[Batch]:
    images, labels = _digits(36, held_out=False)
    for chosen in torch.randperm(len(images), generator=generator).split(64)[:8]:
        up, left = (int(n) - 2 for n in torch.randint(5, (2,), generator=generator))
        yield images[chosen].roll((up, left), (2, 3)), labels[chosen]


def _right(logits: Tensor, labels: Tensor) -> float:
    return 100 * float((logits.argmax(1) == labels).double().mean())


def _canvases(number: int, generator: torch.Generator, *, held_out: bool) -> Batch:
    """Canvases [number,1,48,48] of digits, the corner's dark on bright, and classes [number,36]."""
    images, labels = _digits(8, held_out=held_out)
    of_class = [torch.where(labels == label)[0] for label in range(CLASSES)]
    classes = torch.randint(CLASSES, (number, CELLS * CELLS), generator=generator)
    which = torch.empty_like(classes)
    for label, indices in enumerate(of_class):
        here = classes == label
        draws = torch.randint(len(indices), (int(here.sum()),), generator=generator)
        which[here] = indices[draws]
    cells = images[which, 0]
    cells[:, 0] *= -1
    # [B,36,8,8] -> [B,6,6,8,8] -> [B,6,8,6,8] -> [B,1,48,48]
    grid = cells.unflatten(1, (CELLS, CELLS)).transpose(2, 3)
    return grid.flatten(3, 4).flatten(1, 2)[:, None], classes


def _canvas_batches(generator: torch.Generator) -> Iterator[Batch]:
    for _ in range(10):
        yield _canvases(32, generator, held_out=False)


def _canvas_loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Of the marks, of each cell's class, and of the corner's, which a mark alone rarely teaches.

    Logits [B,1+36,1+2*3], of the class token and of the patches.
    """
    mark, own, corner = logits[:, 1:].split((1, CLASSES, CLASSES), -1)
    same = (classes == classes[:, :1]).float()
    loss = F.binary_cross_entropy_with_logits(
        mark[..., 0], same, pos_weight=mark.new_tensor(CLASSES - 1.0)
    )
    loss = loss + F.cross_entropy(own.flatten(0, 1), classes.flatten())
    return loss + F.cross_entropy(corner.flatten(0, 1), classes[:, :1].expand_as(classes).flatten())


def _marked(logits: Tensor, classes: Tensor) -> float:
    same = (classes == classes[:, :1])[:, 1:]
    hit = (logits[:, 2:, 0] > 0) == same
    return 50 * float(hit[same].double().mean() + hit[~same].double().mean())


TASKS: Mapping[str, Task] = {
    "digits": Task(
        *(36, 6, 10, 60, _digit_batches, lambda: _digits(36, held_out=True)),
        *(F.cross_entropy, _right, "token"),
    ),
    "canvas": Task(
        *(48, 8, 1 + 2 * CLASSES, 20, _canvas_batches),
        lambda: _canvases(256, torch.Generator().manual_seed(10_000), held_out=True),
        *(_canvas_loss, _marked, ""),
    ),
}
