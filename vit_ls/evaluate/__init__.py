"""Evaluates a model: each image counts once, in any number of processes."""

from vit_ls.evaluate.counting import Evaluation, check_evaluated, evaluate
from vit_ls.evaluate.results import check_reports, real_labels_of, summarised

__all__ = [
    "Evaluation",
    "check_evaluated",
    "check_reports",
    "evaluate",
    "real_labels_of",
    "summarised",
]
