"""Images that can only be read in order, from where they are still encoded: each is named."""

import io
import logging
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from PIL import Image
from timm.data import IterableImageDataset
from torch import Tensor

from vit_ls.data.errors import DataError, UnreadableImageError
from vit_ls.data.labels import checked_label
from vit_ls.data.pictures import PictureError, read_picture

_logger = logging.getLogger(__name__)

_FLAGS = 2**20
"""For damaged samples, each found by a hash of its name: of 1000 of them 0.5 share one."""


class Sample(NamedTuple):
    """One image of a stream, still encoded.

    Attributes:
        name: Says which it is.
        encoded: Content of its file; None where it has none.
        label: As the data has it.
    """

    name: str
    encoded: bytes | None
    label: Any


class Part(NamedTuple):
    """The share of a stream that one loading process reads.

    Attributes:
        number: Of the process, among all of the job.
        of: How many there are.
        times: How often the epoch's share was read before, in a training epoch.
    """

    number: int
    of: int
    times: int


class StreamedImages(IterableImageDataset):
    """The images of a stream, decoded here, with damaged ones named and counted.

    timm's readers pass over them: an evaluation counts fewer images, and training reads a stream of
    damaged ones for ever.

    Args:
        reader: timm's, of the data; it knows the split's size, the processes and the epoch.
        samples: Gives the samples of a part of the stream, once, in training shuffled.
        mode: Of the pictures, as Pillow names it.
        split: Its name.
        held_out: Each sample comes once, a damaged one as a blank image with label -1, which
            evaluation counts as wrong. Else damaged ones are left out, and the stream is read again
            until an epoch is full.
        turn: Turn pictures as their EXIF entry says.
    """

    num_classes: int | None = None
    max_unreadable = 0

    def __init__(
        self,
        reader: Any,
        samples: Callable[[Any, Part], Iterator[Sample]],
        *,
        mode: str,
        split: str,
        held_out: bool,
        turn: bool = False,
    ) -> None:
        super().__init__("", reader=reader, input_img_mode=mode)
        self.samples, self.mode, self.split = samples, mode, split
        self.held_out, self.turn = held_out, turn
        # Shared with the loading processes; setting a flag twice does no harm, so needs no lock.
        self.unreadable: Tensor = torch.zeros(_FLAGS, dtype=torch.uint8).share_memory_()

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        """The images, transformed, and their labels."""
        number, of = self._place()
        if self.held_out:
            for sample in self.samples(self.reader, Part(number, of, 0)):
                image = self._decoded(sample)
                yield self._item(sample, image or Image.new(self.mode, (1, 1)), bool(image))
            return
        left = self.reader._num_samples_per_worker()
        for times in range(left):
            before = left
            for sample in self.samples(self.reader, Part(number, of, times)):
                image = self._decoded(sample)
                if image is not None:
                    yield self._item(sample, image, True)
                    left -= 1
                if not left:
                    return
            if left == before:
                raise DataError(
                    f"the training split {self.split!r} has no image that can be read for loading "
                    f"process {number + 1} of {of}."
                )

    def _place(self) -> tuple[int, int]:
        """This process's number among those of all ranks that load, and their number."""
        worker = torch.utils.data.get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        reader = self.reader
        return reader.dist_rank * workers + number, reader.dist_num_replicas * workers

    def _item(self, sample: Sample, image: Image.Image, good: bool) -> tuple[Any, int]:
        label = checked_label(sample.label, self.num_classes, lambda: sample.name) if good else -1
        return (self.transform(image) if self.transform else image), label

    def _decoded(self, sample: Sample) -> Image.Image | None:
        """The picture, or None where it is damaged.

        Raises:
            UnreadableImageError: In training, where more than are allowed are.
        """
        try:
            if sample.encoded is None:
                raise PictureError("it has no image")
            return read_picture(io.BytesIO(sample.encoded), self.mode, turn=self.turn)
        except PictureError as error:
            # Pillow names the file in memory by its address.
            reason = str(error).partition(" <_io")[0]
            message = f"{sample.name}: {reason}"
        if self.held_out:
            _logger.warning("unreadable image, counted as wrong: %s", message)
            return None
        flag = zlib.crc32(sample.name.encode("utf-8", "surrogateescape")) % _FLAGS
        if not self.unreadable[flag]:
            _logger.warning("unreadable image, left out: %s", message)
        self.unreadable[flag] = 1
        if int(self.unreadable.sum()) > self.max_unreadable:
            raise UnreadableImageError(message)
        return None
