"""Prepared images of one size, decoded once and read again for every cell."""

import logging
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_logger = logging.getLogger(__name__)


class Decoded:
    """A file without a name that holds images as they were prepared, each behind a mark.

    It is made before the processes that read images are forked, so that all of them share it, and
    goes with the last of them, however they end. What cannot be kept is decoded again.

    Args:
        folder: Of the disk that takes it; None for the system's folder of temporary files.
        side: Height and width of the images.
    """

    def __init__(self, folder: Path | None, side: int) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.side = side
        file, name = tempfile.mkstemp(dir=folder)
        Path(name).unlink()
        self._file: int | None = file
        weakref.finalize(self, os.close, file)

    def __getstate__(self) -> dict[str, Any]:
        # A process that is not forked has no share in the file.
        return {"side": self.side, "_file": None}

    def get(self, place: int, prepare: Callable[[], Image.Image]) -> Image.Image:
        """Image number `place`, prepared where it is not there yet."""
        if self._file is None:
            return prepare()
        shape = (self.side, self.side, 3)
        length = 1 + int(np.prod(shape))
        kept = os.pread(self._file, length, place * length)
        # The mark is written last, and a hole in a file reads as zeros.
        if len(kept) == length and kept[0] == 1:
            return Image.fromarray(np.frombuffer(kept, np.uint8, offset=1).reshape(shape).copy())
        image = prepare()
        if image.size == (self.side, self.side):
            self._keep(self._file, place * length, image.tobytes())
        return image

    def _keep(self, file: int, start: int, pixels: bytes) -> None:
        try:
            if os.pwrite(file, pixels, start + 1) == len(pixels):
                os.pwrite(file, b"\1", start)
        except OSError as error:
            _logger.warning("Decoded images are not kept: %s", error.strerror)
            self._file = None
