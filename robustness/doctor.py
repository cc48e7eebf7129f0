"""Checks data folders without a model: one line for each finding, with the mend."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from robustness.data import layouts
from robustness.data.benchmarks import BENCHMARKS, Benchmark
from robustness.data.gaps import Kind, gather, some
from robustness.data.images import read_file
from robustness.data.listing import Listing, Sample
from robustness.data.sources import Places, Source
from robustness.data.videos import read_frames
from robustness.errors import leave_interrupts
from vit_ls.data.pictures import opened

_MENDS = {
    Kind.NO_FOLDER: "unpack it",
    Kind.FLAT: "sort the images into class folders",
    Kind.STRANGE_CLASS: "move it away",
    Kind.NOT_UTF8: "rename them",
    Kind.STRAY: "move them to their class folders, or away",
}
_TAILS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_CHUNK = 512

OK, BAD, ABSENT, NOTE = "ok", "bad", "absent", "note"
Finding = tuple[str, str, str]
"""Verdict, benchmark and the line."""


def examine(places: Places, rows: Sequence[Benchmark], *, workers: int = 0) -> Iterator[Finding]:
    """Look at every file of the benchmarks.

    Each header is read, and the end of each file; a file whose end is odd is decoded.

    Args:
        places: Where they lie.
        rows: Benchmarks to look for.
        workers: Processes that open files; 0 for none beside this one.
    """
    pool = ProcessPoolExecutor(workers, initializer=leave_interrupts) if workers else None
    try:
        for row in rows:
            if row.layout == "digits" or row.protocol == "paper":
                continue
            source = places.source(row)
            if source is None:
                yield ABSENT, row.name, f"{places.looked(row)}; mend: unpack it there"
                continue
            notes: list[str] = []
            findings = list(_examine(source, pool, notes))
            yield from ((BAD, row.name, line) for line in findings)
            yield from ((NOTE, row.name, line) for line in notes)
            if not findings:
                yield (
                    OK,
                    row.name,
                    f"{source.images} images in each of {len(row.cells)} cells, {source.folder}",
                )
            if row.classes == "v2":
                yield from _v2_note(row, source.folder)
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)


def _examine(source: Source, pool: ProcessPoolExecutor | None, notes: list[str]) -> Iterator[str]:
    for problem in source.problems():
        yield f"{problem.text}; mend: rename {source.folder}"
    lines: dict[str, list[str]] = {}
    passed: dict[str, list[str]] = {}
    for cell in source.cells():
        listing = source.listing(cell)
        lines[cell] = list(_examine_cell(source, listing, pool))
        passed[cell] = list(listing.notes)
    notes += gather(passed)
    yield from gather(lines)


def _examine_cell(
    source: Source, listing: Listing, pool: ProcessPoolExecutor | None
) -> Iterator[str]:
    row, images = source.benchmark, source.images
    again = "mend: unpack the archive again"
    for problem in listing.problems:
        yield f"{problem.text}; mend: {_MENDS.get(problem.kind, 'unpack it again')}"
    found, folders = len(listing.samples), len({s.key.split("/")[0] for s in listing.samples})
    wanted = folders if row.layout in ("tree", "list") else layouts.naming(row).folders
    files = all(sample.path for sample in listing.samples)
    if listing.samples and files and folders != wanted:
        yield f"{folders} class folders with images, not {wanted}; {again}"
    if found != images and not (found == 0 and listing.problems):
        yield f"{found} images, not {images}; {again}"
    if not files:
        return
    sizes: Counter[tuple[int, int]] = Counter()
    broken = []
    look = pool.map(inspect_file, listing.samples, chunksize=_CHUNK) if pool else map(
        inspect_file, listing.samples
    )  # fmt: skip
    for sample, size in zip(listing.samples, look, strict=True):
        if size is None:
            broken.append(sample.key)
        else:
            sizes[size] += 1
    if broken:
        yield f"{len(broken)} unreadable files ({some(broken)}); mend: copy them again"
    side = row.image_size
    wrong = {size: count for size, count in sizes.items() if side and size != (side, side)}
    if wrong:
        (width, height), _ = max(wrong.items(), key=lambda item: item[1])
        yield (
            f"{sum(wrong.values())} images are not {side}x{side} but e.g. {width}x{height}: "
            f"the tree was resized; {again}"
        )


def inspect_file(sample: Sample) -> tuple[int, int] | None:
    """Width and height, or None where the file cannot be read to its end."""
    assert sample.path is not None
    if sample.path.suffix.lower() in layouts.VIDEO_TYPES:
        return _inspect_video(sample.path)
    try:
        with opened(sample.path) as image:
            size, tail = image.size, _TAILS.get(image.format or "")
        if tail is None or not _ends_with(sample.path, tail):
            read_file(sample)
    except OSError:
        return None
    return size


def _inspect_video(path: Path) -> tuple[int, int] | None:
    try:
        sizes = {frame.size for frame in read_frames(path)}
    except OSError:
        return None
    return sizes.pop() if len(sizes) == 1 else None


def _ends_with(path: Path, tail: bytes) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) < len(tail):
            return False
        file.seek(-len(tail), os.SEEK_END)
        return file.read() == tail


def _v2_note(row: Benchmark, folder: Path) -> Iterator[Finding]:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir())
    astray = sum(name.isdecimal() and int(name) != place for place, name in enumerate(names))
    if astray:
        yield (
            OK,
            row.name,
            (
                f"read by number; sorted as strings, as ImageFolder does, {astray} of {len(names)} "
                "classes would be mislabelled; mend elsewhere: take int(folder name) as the class"
            ),
        )


def healthy(findings: Sequence[Finding]) -> bool:
    """Whether something was found and nothing is bad."""
    verdicts = {verdict for verdict, _, _ in findings}
    return BAD not in verdicts and OK in verdicts


def all_rows() -> list[Benchmark]:
    """The rows that have folders."""
    return [row for row in BENCHMARKS.values() if row.folders]
