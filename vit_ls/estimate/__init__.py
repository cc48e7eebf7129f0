"""What a training would cost, before it is started: `python train.py --config FILE --estimate`."""

from vit_ls.estimate.cost import Estimate, estimated
from vit_ls.estimate.report import headline, report

__all__ = ["Estimate", "estimated", "headline", "report"]
