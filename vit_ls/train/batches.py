"""What a run needs of its training data, and how many of its images cannot be read."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from vit_ls.errors import RunFailedError
from vit_ls.job.ranks import Ranks


class TrainStream(Protocol):
    """What a run needs of its training data."""

    unreadable: Tensor | None
    max_unreadable: int

    @property
    def num_images(self) -> int | None:
        """How many there are; None where that is not known."""

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """Index of each class, where the data has names for them."""

    @property
    def listing(self) -> str | None:
        """Identity of what they are; None where that is not known."""

    def __len__(self) -> int: ...

    def epoch(self, epoch: int, start: int = 0, shift: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch from the `start`-th on, after its first `shift` images."""

    def name(self, index: int) -> str:
        """File name of an image, or "" where it was named when it was met."""


class UnreadableImages:
    """Ends a run that has met too many of them, in any of its processes.

    Args:
        train: The training data.
        ranks: The processes.
    """

    def __init__(self, train: TrainStream, ranks: Ranks) -> None:
        self._train, self._ranks, self._known = train, ranks, 0

    def check(self) -> None:
        """Tell all processes what each has met; they must call it together.

        Raises:
            RunFailedError: There are more than allowed.
        """
        flags = self._train.unreadable
        if flags is None:
            return
        # A byte for each image goes around only where there is a new one.
        if not self._ranks.any(int(flags.sum()) > self._known):
            return
        # A copy goes around, and only ones are written: loading processes set flags meanwhile.
        found = self._ranks.maximum(flags.clone()).nonzero().flatten().tolist()
        flags[found] = 1
        self._known = len(found)
        if len(found) > self._train.max_unreadable:
            names = ", ".join(filter(None, map(self._train.name, found[:3])))
            end = f", the first are {names}." if names else ", each is named above."
            raise RunFailedError(
                f"--max-unreadable {self._train.max_unreadable} is exceeded: {len(found)} training "
                f"images cannot be read{end}"
            )


def check_trained(images: float, epoch: int, split: str) -> None:
    """Raise RunFailedError where an epoch had no image in any process."""
    if not images:
        raise RunFailedError(
            f"the training split {split!r} gave no image in epoch {epoch}: nothing was trained."
        )
