"""Writes corrupted copies of a folder of images: `python -m robustness.corrupt`.

The layout is that of ImageNet-C, <dst>/<corruption>/<severity>/<path under src>. Files that are
there are kept: an interrupted run goes on. The same command always makes the same pixels.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from robustness.corruptions import CORRUPTIONS, RELEASE_QUALITY, SEVERITIES
from robustness.corruptions.weather import frost_photographs
from robustness.data.benchmarks import grid
from robustness.data.images import Generator, described, read_file, resize_and_crop
from robustness.data.layouts import IMAGE_TYPES
from robustness.data.listing import Sample
from robustness.data.sources import MANIFEST, read_manifest
from robustness.errors import UsageError
from robustness.files import write_atomically

_CHUNK = 8
_JPEG = (".jpeg", ".jpg")


@dataclass(frozen=True)
class Job:
    """What is written where.

    Attributes:
        src: Folder of the images.
        dst: Folder of the corrupted ones.
        cells: Corruptions and severities, "fog/3".
        generator: Makes them.
        keep_size: Corrupt images as they are, instead of resize 256 and crop 224.
    """

    src: Path
    dst: Path
    cells: tuple[str, ...]
    generator: Generator
    keep_size: bool

    @property
    def manifest(self) -> dict[str, Any]:
        """Says what the files are; a folder holds files of one kind only."""
        written = {"crop": not self.keep_size, "quality": RELEASE_QUALITY}
        return self.generator.identity | written


def write_corrupted(job: Job, *, workers: int = 0) -> list[str]:
    """Write all files of a job.

    Returns:
        The images that cannot be read.

    Raises:
        UsageError: `src` has no images, or `dst` holds files of another kind.
    """
    keys = sorted(
        path.relative_to(job.src).as_posix()
        for path in job.src.rglob("*")
        if path.suffix.lower() in IMAGE_TYPES
    )
    if not keys:
        raise UsageError(f"--src has no images: {job.src}.")
    made = read_manifest(job.dst)
    if made not in (None, job.manifest):
        raise UsageError(f"--dst holds images made otherwise ({described(made)}).")
    write_atomically(job.dst / MANIFEST, (json.dumps(job.manifest, indent=1) + "\n").encode())
    work = partial(_write_image, job)
    done: Iterable[str | None]
    if workers:
        with ProcessPoolExecutor(workers) as pool:
            done = list(pool.map(work, keys, chunksize=_CHUNK))
    else:
        done = map(work, keys)
    return [key for key in done if key is not None]


def _write_image(job: Job, key: str) -> str | None:
    """Write the corrupted copies of one image; its key comes back where it cannot be read."""
    source = job.src / key
    name = key if source.suffix.lower() in _JPEG else key + ".JPEG"
    missing = [cell for cell in job.cells if not (job.dst / cell / name).exists()]
    if not missing:
        return None
    try:
        image = read_file(Sample(key, 0, source))
    except OSError:
        return key
    if not job.keep_size:
        image = resize_and_crop(image)
    for cell in missing:
        path = job.dst / cell / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        changed = job.generator.corrupted(image, key, cell)
        changed.save(part, "JPEG", quality=RELEASE_QUALITY, optimize=True)
        part.replace(path)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, write, report.

    Returns:
        0, 1 where an image could not be read, 2 for a user's mistake.
    """
    parser = argparse.ArgumentParser(
        prog="python -m robustness.corrupt",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--src", type=Path, required=True, help="folder of images, searched deep")
    parser.add_argument("--dst", type=Path, required=True, help="folder to write to")
    parser.add_argument("--corruptions", nargs="+", choices=[*CORRUPTIONS], metavar="NAME",
                        default=[*CORRUPTIONS], help="default: all nineteen")  # fmt: skip
    parser.add_argument("--severities", nargs="+", type=int, choices=SEVERITIES, metavar="1..5",
                        default=SEVERITIES)  # fmt: skip
    parser.add_argument("--workers", type=int, default=0, help="processes beside this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frost-dir", type=Path, help="photographs of frost")
    parser.add_argument("--keep-size", action="store_true", help="no resize 256 and crop 224")
    args = parser.parse_args(argv)
    cells = tuple(c for c in grid(args.corruptions) if int(c.split("/")[1]) in args.severities)
    generator = Generator(args.seed, args.frost_dir, as_files=False)
    try:
        if not args.src.is_dir():
            raise UsageError(f"--src: no folder {args.src}.")
        if args.frost_dir is not None:
            frost_photographs(args.frost_dir)
        job = Job(args.src, args.dst, cells, generator, args.keep_size)
        unreadable = write_corrupted(job, workers=args.workers)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for key in unreadable:
        sys.stderr.write(f"unreadable, left out: {key}\n")
    return 1 if unreadable else 0


if __name__ == "__main__":
    sys.exit(main())
