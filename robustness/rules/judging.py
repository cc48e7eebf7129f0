"""How answers are judged: logits and targets to integer counts. Ties go to the lower index."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import torch
from torch import Tensor

from robustness.data import labels

Counts = dict[str, int]

NO_ANSWER = -1
"""Predicted class where the answer is not finite, or stands for no class of the benchmark."""


class Answers(NamedTuple):
    """What a model said to a batch.

    Attributes:
        logits: [B, classes], float32; of videos [B, frames, classes].
        targets: [B].
        keys: Names of the images.
        finite: Which answers are finite, [B].
    """

    logits: Tensor
    targets: Tensor
    keys: Sequence[str]
    finite: Tensor


class Predictions(NamedTuple):
    """What is kept of each answer: enough for everything that needs no other image.

    Attributes:
        predicted: Class, in the benchmark's numbering, `NO_ANSWER` where there is none: [B].
        confidence: Softmax of the best class among those that compete, 0 without an answer: [B].
        rank: Classes ahead of the target; 0 is right, as many as there are classes without an
            answer: [B].
        flips: Of each video, how often the answer changed: [B]; None for images. What stands above
            is of the first frame.
        top5_distance: Of each video, how far the five best classes moved, summed: [B].
    """

    predicted: Tensor
    confidence: Tensor
    rank: Tensor
    flips: Tensor | None = None
    top5_distance: Tensor | None = None


class Verdict(NamedTuple):
    """Counts of a batch and the predictions that they count."""

    counts: Counts
    predictions: Predictions


Rule = Callable[[Answers], Verdict]


def judge(name: str, logits: Tensor, targets: Tensor, keys: Sequence[str]) -> Verdict:
    """Judge one batch under the rule `name`.

    An answer that is not finite is wrong everywhere and counted under "nonfinite".
    """
    logits = logits.float()
    finite = torch.isfinite(logits).flatten(1).all(dim=1)
    verdict = RULES[name](Answers(logits, targets, keys, finite))
    counts = {"images": len(targets), "nonfinite": int((~finite).sum())}
    return verdict._replace(counts=verdict.counts | counts)


def _ranks(logits: Tensor, targets: Tensor) -> Tensor:
    """Place of each target among the logits, 0 for the best."""
    own = logits.gather(1, targets[:, None])
    index = torch.arange(logits.shape[1], device=logits.device)
    ahead = (logits > own) | ((logits == own) & (index < targets[:, None]))
    return ahead.sum(dim=1)


def _kept(answers: Answers, predicted: Tensor, logits: Tensor, ranks: Tensor) -> Predictions:
    """The predictions, with those that are not finite set to what counts as none."""
    confidence = torch.softmax(logits, dim=1).amax(dim=1)
    return Predictions(
        torch.where(answers.finite, predicted, NO_ANSWER),
        torch.where(answers.finite, confidence, 0.0),
        torch.where(answers.finite, ranks, logits.shape[1]),
    )


def _tops(predictions: Predictions) -> Counts:
    # Where there are fewer than five classes, the rank of no answer is below five.
    answered = predictions.confidence > 0
    top1, top5 = (int(((predictions.rank < k) & answered).sum()) for k in (1, 5))
    return {"top1": top1, "top5": top5}


def _plain(answers: Answers) -> Verdict:
    ranks = _ranks(answers.logits, answers.targets)
    found = _kept(answers, _best(answers.logits), answers.logits, ranks)
    return Verdict(_tops(found), found)


def _masked(subset: str) -> Rule:
    """Only the 200 classes of the subset compete; every image is of one of them."""

    def rule(answers: Answers) -> Verdict:
        kept = torch.tensor(labels.subset_indices(subset), device=answers.logits.device)
        position = torch.full((answers.logits.shape[1],), -1, device=kept.device)
        position[kept] = torch.arange(len(kept), device=kept.device)
        masked = answers._replace(logits=answers.logits[:, kept], targets=position[answers.targets])
        verdict, free = _plain(masked), _plain(answers)
        predicted = verdict.predictions.predicted
        found = verdict.predictions._replace(
            predicted=torch.where(predicted >= 0, kept[predicted], NO_ANSWER)
        )
        unmasked = {f"{name}_unmasked": count for name, count in free.counts.items()}
        return Verdict(verdict.counts | unmasked | {"images": len(masked.targets)}, found)

    return rule


def _clean(subset: str, answers: Answers) -> Counts:
    """Counts on the images of the 200 classes of a subset, under its mask."""
    kept = torch.tensor(labels.subset_indices(subset), device=answers.targets.device)
    inside = torch.isin(answers.targets, kept)
    keys = [key for key, own in zip(answers.keys, inside.tolist(), strict=True) if own]
    part = Answers(answers.logits[inside], answers.targets[inside], keys, answers.finite[inside])
    counts = _masked(subset)(part).counts
    return {f"{subset}200_{name}": count for name, count in counts.items()}


def _val(answers: Answers) -> Verdict:
    """One pass serves the plain numbers, ReaL and the clean accuracy on the classes of A and R."""
    plain = _plain(answers)
    known = labels.real_labels()
    found = [known.get(PurePosixPath(key).stem) for key in answers.keys]
    best = plain.predictions.predicted.tolist()
    real = [(answer, right) for answer, right in zip(best, found, strict=True) if right]
    counts = {
        **plain.counts,
        "real_named": sum(right is not None for right in found),
        "real_images": len(real),
        "real_top1": sum(answer in right for answer, right in real),
        **_clean("a", answers),
        **_clean("r", answers),
    }
    return Verdict(counts, plain.predictions)


def _mapped(classes: Callable[[], Tensor]) -> Rule:
    """Best of the 1000, then mapped to the benchmark's classes.

    An answer outside them is wrong and counts. A model that has the benchmark's classes itself is
    judged by them. The rank counts the classes ahead of the first one that would be right.
    """

    def rule(answers: Answers) -> Verdict:
        table = classes().to(answers.logits.device)
        if answers.logits.shape[1] != len(table):
            verdict = _plain(answers)
            return Verdict(verdict.counts | {"unmapped": 0}, verdict.predictions)
        predicted = table[_best(answers.logits)]
        right = table[None, :] == answers.targets[:, None]
        first = _best(answers.logits.masked_fill(~right, -torch.inf))
        found = _kept(answers, predicted, answers.logits, _ranks(answers.logits, first))
        unmapped = int((found.predicted < 0).sum())
        return Verdict(_tops(found) | {"unmapped": unmapped}, found)

    return rule


TOP = 5
"""Places that the distance between two rankings looks at."""


def _flips(*, from_first: bool) -> Rule:
    """How often the answer changes within a video, and how far the five best classes move.

    Each frame is compared with the one before, or with the first one (arXiv:1903.12261, section
    4.2): draws of noise have no order. The label takes no part.
    """

    def rule(answers: Answers) -> Verdict:
        logits = answers.logits
        first = _plain(answers._replace(logits=logits[:, 0]))
        order = logits.argsort(dim=-1, descending=True, stable=True)
        ranks = order.argsort(dim=-1)
        steps = order.shape[1] - 1
        earlier = order[:, :1].expand(-1, steps, -1) if from_first else order[:, :-1]
        flips = (earlier[..., 0] != order[:, 1:, 0]).sum(dim=1)
        # where the five best of the earlier frame stand in the later one, from place 5 on alike
        places = ranks[:, 1:].gather(-1, earlier[..., :TOP]).clamp(max=TOP)
        were = torch.arange(places.shape[-1], device=places.device)
        moved = (places - were).abs().sum(dim=(1, 2))
        counts = {
            **first.counts,
            "comparisons": len(logits) * steps,
            "flips": int(flips.sum()),
            "top5_distance": int(moved.sum()),
        }
        return Verdict(counts, first.predictions._replace(flips=flips, top5_distance=moved))

    return rule


def _unknown(answers: Answers) -> Verdict:
    """Images of no class: none is right; how many the model is sure of is counted."""
    logits = answers.logits
    ranks = torch.full_like(answers.targets, logits.shape[1])
    found = _kept(answers, _best(logits), logits, ranks)
    sure = int((found.confidence > SURE).sum())
    return Verdict({"top1": 0, "sure": sure}, found)


def _best(logits: Tensor) -> Tensor:
    """Index of the best class, the lowest one in a tie."""
    return (logits == logits.amax(dim=1, keepdim=True)).int().argmax(dim=1)


SURE = 0.5
"""Confidence from which on an answer to an image of no class is counted."""

RULES: dict[str, Rule] = {
    "plain": _plain,
    "a": _masked("a"),
    "r": _masked("r"),
    "val": _val,
    "unknown": _unknown,
    "flips": _flips(from_first=False),
    "flips_from_first": _flips(from_first=True),
    "in9": _mapped(labels.imagenet9_classes),
    "objectnet": _mapped(labels.objectnet_classes),
}
