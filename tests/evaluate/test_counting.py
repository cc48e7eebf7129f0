"""Evaluation counts each image once, whatever the batches and the processes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from timm.data.distributed_sampler import OrderedDistributedSampler
from torch import Tensor, nn

from vit_ls.evaluate.counting import Evaluator
from vit_ls.job import Ranks

IMAGES, CLASSES = 23, 7
ALONE = Ranks(torch.device("cpu"))


def _logits() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(IMAGES, CLASSES, generator=generator)
    return logits, torch.randint(CLASSES, (IMAGES,), generator=generator)


def _collected(parts: list[Any]) -> Any:
    """Ranks whose processes' values were collected one after another."""
    return SimpleNamespace(gather=lambda _: parts)


@pytest.mark.parametrize("batch", [1, 4, 5, 23])
@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_counts_are_exact_for_any_batch_size_and_number_of_processes(
    batch: int, processes: int
) -> None:
    logits, targets = _logits()
    evaluators = []
    for rank in range(processes):
        sampler = OrderedDistributedSampler(range(IMAGES), processes, rank)
        evaluator = Evaluator(ALONE.device, limit=sampler.num_valid_samples, per_image=True)
        for indices in torch.tensor(list(sampler)).split(batch):
            evaluator.update(logits[indices], targets[indices])
        evaluators.append(evaluator)

    *counts, loss_sum = torch.stack([one.totals(ALONE) for one in evaluators]).sum(0).tolist()
    ranked = logits.argsort(dim=1, descending=True)
    assert counts == [
        IMAGES,
        0,
        int((ranked[:, 0] == targets).sum()),
        int((ranked[:, :5] == targets[:, None]).sum()),
    ]
    loss = nn.functional.cross_entropy(logits, targets).item()
    assert loss_sum / IMAGES == pytest.approx(loss, rel=1e-6)

    parts = [one.per_image(ALONE) for one in evaluators]
    collected = evaluators[0].per_image(_collected(parts))
    assert collected is not None
    assert torch.equal(collected.targets, targets)
    assert torch.equal(collected.predictions, ranked[:, :5])


def test_an_image_without_a_label_counts_as_wrong_and_not_in_the_loss() -> None:
    logits = torch.eye(3)
    evaluator = Evaluator(ALONE.device)
    evaluator.update(logits, torch.tensor([0, -1, 2]))
    *counts, loss_sum = evaluator.totals(ALONE).tolist()
    assert counts == [3, 1, 2, 2]
    wanted = nn.functional.cross_entropy(logits[[0, 2]], torch.tensor([0, 2]), reduction="sum")
    assert loss_sum == pytest.approx(wanted.item(), rel=1e-6)


def test_a_rank_without_images_counts_nothing() -> None:
    evaluator = Evaluator(ALONE.device, limit=0)
    evaluator.update(torch.eye(3), torch.tensor([0, 1, 2]))
    assert evaluator.totals(ALONE).tolist() == [0, 0, 0, 0, 0]
