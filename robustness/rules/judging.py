"""How answers are judged: logits and targets to integer counts. Ties go to the lower index."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

import torch

from robustness.data import labels

Counts = dict[str, int]
Rule = Callable[[torch.Tensor, torch.Tensor, Sequence[str], torch.Tensor], Counts]
"""Logits [B, classes], targets [B], keys, and which answers are finite [B], to counts."""


def judge(name: str, logits: torch.Tensor, targets: torch.Tensor, keys: Sequence[str]) -> Counts:
    """Counts of one batch under the rule `name`.

    An answer that is not finite is wrong everywhere and counted under "nonfinite".
    """
    logits = logits.float()
    finite = torch.isfinite(logits).all(dim=1)
    counts = RULES[name](logits, targets, keys, finite)
    return counts | {"images": len(targets), "nonfinite": int((~finite).sum())}


def _ranks(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Place of each target among the logits, 0 for the best."""
    own = logits.gather(1, targets[:, None])
    index = torch.arange(logits.shape[1], device=logits.device)
    ahead = (logits > own) | ((logits == own) & (index < targets[:, None]))
    return ahead.sum(dim=1)


def _top(logits: torch.Tensor, targets: torch.Tensor, finite: torch.Tensor) -> tuple[int, int]:
    ranks = _ranks(logits, targets)
    return int(((ranks < 1) & finite).sum()), int(((ranks < 5) & finite).sum())


def _plain(
    logits: torch.Tensor, targets: torch.Tensor, _: Sequence[str], finite: torch.Tensor
) -> Counts:
    top1, top5 = _top(logits, targets, finite)
    return {"top1": top1, "top5": top5}


def _masked(subset: str, prefix: str = "") -> Rule:
    """Only the 200 classes of the subset compete; images of other classes do not count."""

    def rule(
        logits: torch.Tensor, targets: torch.Tensor, _: Sequence[str], finite: torch.Tensor
    ) -> Counts:
        kept = torch.tensor(labels.subset_indices(subset), device=logits.device)
        position = torch.full((logits.shape[1],), -1, device=logits.device)
        position[kept] = torch.arange(len(kept), device=logits.device)
        inside = position[targets] >= 0
        logits, targets, finite = logits[inside], targets[inside], finite[inside]
        top1, top5 = _top(logits[:, kept], position[targets], finite)
        free1, free5 = _top(logits, targets, finite)
        counts = {
            "images": len(targets),
            "top1": top1,
            "top5": top5,
            "top1_unmasked": free1,
            "top5_unmasked": free5,
        }
        return {prefix + name: count for name, count in counts.items()}

    return rule


def _val(
    logits: torch.Tensor, targets: torch.Tensor, keys: Sequence[str], finite: torch.Tensor
) -> Counts:
    """One pass serves the plain numbers, ReaL and the clean accuracy on the classes of A and R."""
    answers = _best(logits, finite)
    known = labels.real_labels()
    found = [known.get(PurePosixPath(key).stem) for key in keys]
    real = [(answer, right) for answer, right in zip(answers, found, strict=True) if right]
    return {
        **_plain(logits, targets, keys, finite),
        "real_named": sum(right is not None for right in found),
        "real_images": len(real),
        "real_top1": sum(answer in right for answer, right in real),
        **_masked("a", "a200_")(logits, targets, keys, finite),
        **_masked("r", "r200_")(logits, targets, keys, finite),
    }


def _in9(
    logits: torch.Tensor, targets: torch.Tensor, _: Sequence[str], finite: torch.Tensor
) -> Counts:
    """Best of the 1000, then mapped to the nine; an answer outside them is wrong and counts."""
    mapped = labels.imagenet9_classes()[torch.tensor(_best(logits, finite), dtype=torch.long)]
    return {
        "top1": int(((mapped == targets.cpu()) & finite.cpu()).sum()),
        "unmapped": int((mapped < 0).sum()),
    }


def _best(logits: torch.Tensor, finite: torch.Tensor) -> list[int]:
    """Index of the best class, the lowest one in a tie, -1 where the answer is not finite."""
    best = (logits == logits.amax(dim=1, keepdim=True)).int().argmax(dim=1)
    answers: list[int] = torch.where(finite, best, -1).tolist()
    return answers


RULES: dict[str, Rule] = {
    "plain": _plain,
    "a": _masked("a"),
    "r": _masked("r"),
    "val": _val,
    "in9": _in9,
}
