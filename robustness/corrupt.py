"""Writes corrupted copies of a folder of images: `python -m robustness.corrupt`.

The layout is that of ImageNet-C, <dst>/<corruption>/<severity>/<path under src>. An interrupted run
goes on: each file says in its JPEG comment which image and settings it was made of, and is kept
where they are the same. What was not made by this command is named and never taken over. The same
command always makes the same pixels.
"""

import argparse
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from robustness.corruptions import CORRUPTIONS, RELEASE_QUALITY, SEVERITIES
from robustness.corruptions.weather import frost_photographs
from robustness.data.benchmarks import grid
from robustness.data.gaps import some
from robustness.data.images import Generator, described, read_file, resize_and_crop
from robustness.data.layouts import IMAGE_TYPES, is_junk
from robustness.data.listing import Sample
from robustness.data.sources import MANIFEST, read_manifest
from robustness.errors import ending, leave_interrupts, shown, uninterrupted
from robustness.files import write_atomically
from vit_ls.config import ConfigError
from vit_ls.data.pictures import PictureError, opened

T = TypeVar("T")

_CHUNK = 8
_JPEG = (".jpeg", ".jpg")
_MADE_BY = "robustness.corrupt "
"""Begins the comment of each file; a digest of what it was made of follows."""


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
        ConfigError: `src` has no images, or `dst` holds files that were not made by this job.
    """
    keys = sorted(
        path.relative_to(job.src).as_posix()
        for path in job.src.rglob("*")
        if path.suffix.lower() in IMAGE_TYPES
    )
    if not keys:
        raise ConfigError(f"--src has no images: {job.src}.")
    odd = [shown(key) for key in keys if shown(key) != key]
    if odd:
        raise ConfigError(f"--src has names that are not UTF-8, rename them: {some(odd)}.")
    made = read_manifest(job.dst)
    if made not in (None, job.manifest):
        raise ConfigError(f"--dst holds images made otherwise ({described(made)}).")
    foreign = [
        *_unexpected(job, keys),
        *chain.from_iterable(_map(partial(_not_ours, job), keys, workers)),
    ]
    if foreign:
        raise ConfigError(
            f"--dst holds {len(foreign)} files that this command did not make of --src: "
            f"{some(sorted(foreign))}; move them away, or name another folder."
        )
    write_atomically(job.dst / MANIFEST, (json.dumps(job.manifest, indent=1) + "\n").encode())
    done = _map(partial(_write_image, job), keys, workers)
    return [key for key in done if key is not None]


def _map(work: Callable[[str], T], keys: Sequence[str], workers: int) -> list[T]:
    pool = ProcessPoolExecutor(workers, initializer=leave_interrupts) if workers else None
    try:
        with uninterrupted():
            done = pool.map(work, keys, chunksize=_CHUNK) if pool else map(work, keys)
        return list(done)
    finally:
        # After Ctrl-C, the images that nobody has begun are not waited for.
        if pool:
            pool.shutdown(cancel_futures=True)


def _name_of(key: str) -> str:
    """Name of the corrupted copy of an image."""
    return key if Path(key).suffix.lower() in _JPEG else key + ".JPEG"


def _unexpected(job: Job, keys: Sequence[str]) -> Iterator[str]:
    """Files of `dst` that no image of `src` is the origin of."""
    names = {_name_of(key) for key in keys}
    cells = set(grid(CORRUPTIONS))
    for folder, inside, files in os.walk(job.dst):
        inside[:] = [name for name in inside if not is_junk(name)]
        place = Path(folder).relative_to(job.dst)
        for file in files:
            path = (place / file).as_posix()
            corruption, _, rest = path.partition("/")
            severity, _, name = rest.partition("/")
            known = f"{corruption}/{severity}" in cells and name in names
            if not (known or is_junk(file) or path == MANIFEST):
                yield shown(path)


def _not_ours(job: Job, key: str) -> list[str]:
    """The corrupted copies of an image that are there and were not made of it by this job."""
    there = [cell for cell in grid(CORRUPTIONS) if os.path.lexists(job.dst / cell / _name_of(key))]
    if not there:
        return []
    origin = _digest(job.src / key)
    return [
        f"{cell}/{_name_of(key)}"
        for cell in there
        if _comment_of(job.dst / cell / _name_of(key)) != _comment(job, key, cell, origin)
    ]


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


def _comment(job: Job, key: str, cell: str, origin: str) -> str:
    """What a file says it was made of: image, settings, and the corruption as it is written now."""
    made = [job.manifest, key, cell, origin, job.generator.fingerprint(cell)]
    return _MADE_BY + hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:32]


def _comment_of(file: Path) -> str | None:
    try:
        with opened(file) as image:
            found = image.info.get("comment", b"")
    except PictureError:
        return None
    return found.decode("ascii", "replace") if isinstance(found, bytes) else str(found)


def _write_image(job: Job, key: str) -> str | None:
    """Write the corrupted copies of one image; its key comes back where it cannot be read."""
    source = job.src / key
    name = _name_of(key)
    missing = [cell for cell in job.cells if not (job.dst / cell / name).exists()]
    if not missing:
        return None
    try:
        image = read_file(Sample(key, 0, source))
    except OSError:
        return key
    if not job.keep_size:
        image = resize_and_crop(image)
    origin = _digest(source)
    for cell in missing:
        content = io.BytesIO()
        comment = _comment(job, key, cell, origin)
        changed = job.generator.corrupted(image, key, cell)
        changed.save(content, "JPEG", quality=RELEASE_QUALITY, optimize=True, comment=comment)
        write_atomically(job.dst / cell / name, content.getvalue())
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, write, report.

    Returns:
        0, 1 where an image could not be read, 2 for a user's mistake, 130 after Ctrl-C.
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
    return ending("python -m robustness.corrupt", lambda: _main(args))


def _main(args: argparse.Namespace) -> int:
    cells = tuple(c for c in grid(args.corruptions) if int(c.split("/")[1]) in args.severities)
    generator = Generator(args.seed, args.frost_dir, as_files=False)
    if not args.src.is_dir():
        raise ConfigError(f"--src: no folder {args.src}.")
    if args.frost_dir is not None:
        frost_photographs(args.frost_dir)
    job = Job(args.src, args.dst, cells, generator, args.keep_size)
    unreadable = write_corrupted(job, workers=args.workers)
    for key in unreadable:
        sys.stderr.write(f"unreadable, left out: {key}\n")
    return 1 if unreadable else 0


if __name__ == "__main__":
    sys.exit(main())
