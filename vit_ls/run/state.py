"""Where a run stands, as a checkpoint holds it."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from timm.task import TrainingTask
from timm.utils import unwrap_model
from torch import Tensor

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.errors import blamed_on
from vit_ls.job.ranks import Ranks
from vit_ls.job.rng import random_state, set_random_state
from vit_ls.models.wrappers import cleaned
from vit_ls.run.optim_state import restore, whole_state

_logger = logging.getLogger(__name__)


@dataclass
class Progress:
    """Where a run stands: before batch `batch` of epoch `epoch`.

    Attributes:
        epoch: Epochs done.
        batch: Batches done in this one.
        shift: Images done in it before its first batch, where another number of processes began it.
        updates: Changes of the weights so far.
        skipped: Updates skipped for a non-finite loss so far.
        loss_sum: Sum of this epoch's losses over this process's images.
        images: Their number.
        norm_sum: Sum of this epoch's gradient norms, where they are computed.
        norms: Their number.
        rows: The summary, one row per epoch.
    """

    epoch: int = 0
    batch: int = 0
    shift: int = 0
    updates: int = 0
    skipped: int = 0
    loss_sum: float = 0.0
    images: int = 0
    norm_sum: float = 0.0
    norms: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class RunState:
    """Everything of a run that a checkpoint restores.

    The schedule is a function of the summary and the number of updates, so these stand for it.

    Attributes:
        config: Of the run.
        ranks: The processes.
        task: Holds the model and its average.
        optimizer: With its own state.
        scaler: Of float16 training, or None.
        unreadable: Flags of training images, or None for data that has none.
        classes: Index of each class, where the data has names for them.
        training_images: How many there are; None for streamed data.
        listing: Identity of the training data's listing, where it has one.
        at: Where the run stands.
    """

    config: TrainConfig
    ranks: Ranks
    task: TrainingTask
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None
    unreadable: Tensor | None
    classes: dict[str, int] | None = None
    training_images: int | None = None
    listing: str | None = None
    at: Progress = field(default_factory=Progress)

    def of_ranks(self) -> list[dict[str, Any]]:
        """What differs between the processes, of all of them; all must call it together."""
        mine = {"random": random_state(), "loss_sum": self.at.loss_sum, "images": self.at.images}
        return self.ranks.gather(mine)

    def content(self, of_ranks: list[dict[str, Any]]) -> dict[str, Any]:
        """The content of a checkpoint: plain values and tensors."""
        at = self.at
        images = at.shift + at.batch * self._step
        content: dict[str, Any] = {
            "version": 2,  # of timm's format: its `epoch` is the last one trained
            "arch": self.config.model,
            "args": asdict(self.config),
            "classes": self.classes,
            "optimizer": whole_state(self.optimizer),
            "position": {
                "epoch": at.epoch,
                "batch": at.batch,
                "images": images,
                "shift": at.shift,
                "updates": at.updates,
                "skipped": at.skipped,
                "norm_sum": at.norm_sum,
                "norms": at.norms,
            },
            "ranks": of_ranks,
            "summary": at.rows,
            "training_images": self.training_images,
            "listing": self.listing,
            "unreadable": [],
        }
        content |= self.task.get_checkpoint_state() | self.task.get_checkpoint_state(ema=True)
        if self.unreadable is not None:
            content["unreadable"] = self.unreadable.nonzero().flatten().tolist()
        if self.scaler is not None:
            content["amp_scaler"] = self.scaler.state_dict()
        return content

    def load_weights(self, content: dict[str, Any], *, ema: bool = False) -> None:
        """Take the weights, or their average, from a checkpoint."""
        key = "state_dict_ema" if ema and "state_dict_ema" in content else "state_dict"
        task_state = content.get(key.replace("state_dict", "task_state"))
        model = self.task.get_eval_model(ema=ema)
        own = () if model is None else unwrap_model(model).state_dict()
        _load(
            content,
            key,
            lambda state: self.task.load_checkpoint_state(cleaned(state, own), task_state, ema=ema),
        )

    def load_optimizer(self, content: dict[str, Any], former: torch.optim.Optimizer | None) -> None:
        """Take the state of the optimiser, and of the loss scale, from a checkpoint.

        Args:
            content: Of the checkpoint.
            former: The optimiser that the run's former settings make, where they differ; what
                they changed is then as it is now.
        """
        _load(content, "optimizer", lambda saved: restore(self.optimizer, saved, former))
        if self.scaler is not None and "amp_scaler" in content:
            _load(content, "amp_scaler", self.scaler.load_state_dict)

    def load_position(self, content: dict[str, Any], *, reseeded: bool) -> None:
        """Take from a checkpoint where the run stood.

        Args:
            content: Of the checkpoint.
            reseeded: Leave the random states as they are.
        """
        if "position" not in content:
            # timm's: its `epoch` is the last one trained since version 2.
            self.at.epoch = int(content["epoch"]) + int(content.get("version", 1) > 1)
            _logger.warning("the checkpoint holds no random states: they start anew.")
            return
        position, of_ranks = content["position"], content["ranks"]
        images, shift = position["images"], position.get("shift", 0)
        if (images - shift) % self._step:
            shift = images % self._step
        self.at = Progress(
            epoch=position["epoch"],
            batch=(images - shift) // self._step,
            shift=shift,
            updates=position["updates"],
            skipped=position["skipped"],
            norm_sum=position.get("norm_sum", 0.0),
            norms=position.get("norms", 0),
            rows=content["summary"],
        )
        if self.unreadable is not None and self.same_images(content):
            self.unreadable[content["unreadable"]] = 1
        if len(of_ranks) != self.ranks.world_size:
            was, now = len(of_ranks), self.ranks.world_size
            _logger.warning("%d processes became %d: random states start anew.", was, now)
            if self.ranks.primary:
                self.at.loss_sum = sum(one["loss_sum"] for one in of_ranks)
                self.at.images = sum(one["images"] for one in of_ranks)
            return
        mine = of_ranks[self.ranks.rank]
        self.at.loss_sum, self.at.images = mine["loss_sum"], mine["images"]
        if not reseeded:
            set_random_state(mine["random"])

    @property
    def _step(self) -> int:
        """Images of a batch of all processes."""
        return self.config.batch_size * self.ranks.world_size

    def same_images(self, content: dict[str, Any]) -> bool:
        """Whether a checkpoint is of a run on the same training images, as far as it says."""
        same = content.get("training_images", self.training_images) == self.training_images
        return same and content.get("listing") in (None, self.listing)

    def metric(self, row: dict[str, Any]) -> float | None:
        """What ranks an epoch: the better of the weights' and their average's value."""
        names = (f"eval_{self.config.eval_metric}", f"eval_ema_{self.config.eval_metric}")
        better = min if self.config.eval_metric == "loss" else max
        return better((row[name] for name in names if name in row), default=None)


def _load(content: dict[str, Any], key: str, load: Callable[[Any], object]) -> None:
    """Load a part of a checkpoint, or say that it does not fit."""
    with blamed_on(f"--resume: {key} of the checkpoint does not fit this run", ConfigError):
        load(content[key])
