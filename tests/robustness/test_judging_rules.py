import pytest
import torch

from robustness.data import labels
from robustness.rules import judging
from robustness.rules.judging import Counts

A, R = labels.subset_indices("a"), labels.subset_indices("r")


def judge(rule: str, logits: torch.Tensor, targets: torch.Tensor, keys: list[str]) -> Counts:
    """The counts, which are those of the predictions that are kept."""
    counts, kept = judging.judge(rule, logits, targets, keys)
    assert counts["top1"] == int((kept.rank == 0).sum())
    assert len(kept.predicted) == len(targets)
    return counts


def answers(*order: list[int]) -> torch.Tensor:
    """Logits whose best classes are the given ones, best first."""
    logits = torch.zeros(len(order), 1000)
    for row, classes in enumerate(order):
        for place, index in enumerate(classes):
            logits[row, index] = 10.0 - place
    return logits


def test_class_lists_are_the_published_ones() -> None:
    assert A[:8] == (6, 11, 13, 15, 17, 22, 23, 27)
    assert R[:8] == (1, 2, 4, 6, 8, 9, 11, 13)
    assert len(A) == len(R) == 200
    assert len(set(A) & set(R)) == 86


def test_imagenet9_maps_as_many_classes_as_published() -> None:
    counts = torch.bincount(labels.imagenet9_classes() + 1).tolist()
    assert counts == [630, 116, 52, 42, 36, 35, 27, 26, 20, 16]


def test_real_leaves_3163_images_without_a_label() -> None:
    real = labels.real_labels()
    assert len(real) == 50_000
    assert sum(not right for right in real.values()) == 3163


def test_the_mask_lets_only_the_200_classes_compete() -> None:
    counts = judge("a", answers([0, 6], [0, 11], [13]), torch.tensor([6, 13, 13]), ["", "", ""])
    assert counts["top1"] == 2
    assert counts["top1_unmasked"] == 1
    assert counts["images"] == 3


def test_unmapped_answers_of_imagenet9_are_wrong_and_count() -> None:
    counts = judge("in9", answers([151], [999], [0]), torch.tensor([0, 0, 0]), ["", "", ""])
    assert (counts["top1"], counts["unmapped"], counts["images"]) == (1, 1, 3)


def test_real_counts_any_of_its_labels_and_skips_empty_lists() -> None:
    real = labels.real_labels()
    several = next(stem for stem, right in real.items() if len(right) > 1)
    empty = next(stem for stem, right in real.items() if not right)
    keys = [f"n0/{several}.JPEG", f"n0/{several}.JPEG", f"n0/{empty}.JPEG", "n0/other.JPEG"]
    first, second = sorted(real[several])[:2]
    logits = answers([first], [second], [0], [0])
    counts = judge("val", logits, torch.zeros(4, dtype=torch.long), keys)
    assert (counts["real_named"], counts["real_images"], counts["real_top1"]) == (3, 2, 2)


def test_clean_accuracy_counts_only_images_of_the_subset() -> None:
    both, neither = 6, 0
    targets = torch.tensor([both, neither])
    counts = judge("val", answers([0, 6], [0]), targets, ["", ""])
    assert (counts["a200_images"], counts["a200_top1"], counts["a200_top1_unmasked"]) == (1, 1, 0)


def test_a_constant_model_is_right_for_the_first_class_only() -> None:
    targets = torch.tensor([0, 4, 5, 999])
    counts = judge("plain", torch.zeros(4, 1000), targets, [""] * 4)
    assert (counts["top1"], counts["top5"]) == (1, 2)


@pytest.mark.parametrize("rule", ["plain", "a", "val", "in9"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_answers_that_are_not_finite_are_wrong_and_counted(rule: str, bad: float) -> None:
    logits = answers([6], [6])
    logits[0, 6] = bad
    target = torch.tensor([8, 8] if rule == "in9" else [6, 6])
    counts = judge(rule, logits, target, ["", ""])
    assert counts["nonfinite"] == 1
    assert counts["top1"] == 1
