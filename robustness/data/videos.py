"""Frames of videos, by PyAV, which brings FFmpeg along: the extra `videos`."""

from pathlib import Path
from typing import Any

from PIL import Image

from vit_ls.config import ConfigError


def read_frames(path: Path) -> list[Image.Image]:
    """Decode all frames of a file as 8-bit RGB.

    Raises:
        OSError: The file cannot be read or is damaged.
        ConfigError: PyAV is not installed.
    """
    av = needed()
    try:
        with av.open(str(path)) as container:
            return [frame.to_image() for frame in container.decode(video=0)]
    # PyAV's own errors are ValueErrors or OSErrors; a file without a video has no stream 0.
    except (av.error.FFmpegError, ValueError, IndexError) as error:
        raise OSError(str(error)) from error


def needed() -> Any:
    """The library.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import av
    except ModuleNotFoundError as error:
        raise ConfigError("videos need PyAV: pip install -e '.[videos]'.") from error
    return av
