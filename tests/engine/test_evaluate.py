"""Evaluation counts each image once, whatever the batches and the processes."""

from types import SimpleNamespace

import pytest
import torch
from timm.data.distributed_sampler import OrderedDistributedSampler
from torch import Tensor, nn

from vit_ls.engine.evaluate import Evaluator

IMAGES, CLASSES = 23, 7


def _logits() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(IMAGES, CLASSES, generator=generator)
    return logits, torch.randint(CLASSES, (IMAGES,), generator=generator)


class _Gathered:
    """Ranks whose processes' values were collected one after another."""

    def __init__(self, values: list[tuple[Tensor, Tensor]]) -> None:
        self.values = values

    def gather(self, _: object) -> list[tuple[Tensor, Tensor]]:
        return self.values


@pytest.mark.parametrize("batch", [1, 4, 5, 23])
@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_counts_are_exact_for_any_batch_size_and_number_of_processes(
    batch: int, processes: int
) -> None:
    logits, targets = _logits()
    evaluators = []
    for rank in range(processes):
        sampler = OrderedDistributedSampler(range(IMAGES), processes, rank)
        evaluator = Evaluator(torch.device("cpu"), limit=sampler.num_valid_samples)
        for indices in torch.tensor(list(sampler)).split(batch):
            evaluator.update(logits[indices], targets[indices])
        evaluators.append(evaluator)

    counts = sum(evaluator.counts for evaluator in evaluators)
    ranked = logits.argsort(dim=1, descending=True)
    assert counts.tolist() == [
        IMAGES,
        int((ranked[:, 0] == targets).sum()),
        int((ranked[:, :5] == targets[:, None]).sum()),
    ]
    loss = sum(float(evaluator.loss_sum) for evaluator in evaluators) / IMAGES
    assert loss == pytest.approx(nn.functional.cross_entropy(logits, targets).item(), rel=1e-6)

    parts = [(torch.cat(one.predictions), torch.cat(one.targets)) for one in evaluators]
    predictions, labels = evaluators[0].per_image(_Gathered(parts))  # type: ignore[arg-type]
    assert torch.equal(labels, targets)
    assert torch.equal(predictions, ranked[:, :5])


def test_an_image_without_a_label_counts_as_wrong() -> None:
    evaluator = Evaluator(torch.device("cpu"), limit=None)
    evaluator.update(torch.eye(3), torch.tensor([0, -1, 2]))
    assert evaluator.counts.tolist() == [3, 2, 2]


def test_a_rank_without_images_counts_nothing() -> None:
    evaluator = Evaluator(torch.device("cpu"), limit=0)
    evaluator.update(torch.eye(3), torch.tensor([0, 1, 2]))
    assert evaluator.counts.tolist() == [0, 0, 0]
    assert SimpleNamespace(**evaluator.compute()).top1 == 0
