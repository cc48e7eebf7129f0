"""One HTML page of one or many reports: `python -m robustness.page FOLDER...`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from robustness.data.benchmarks import Benchmark, choose
from robustness.data.images import Generator
from robustness.data.own import read_benchmark
from robustness.data.sources import Places
from robustness.errors import ending
from robustness.files import write_atomically
from robustness.reporting.comparison import distinct_names
from robustness.reporting.page import WorstImage, to_html
from robustness.reporting.runs import Run
from vit_ls.config import ConfigError

_SIDE = 160


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page.

    Returns:
        0, 2 for a user's mistake, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m robustness.page", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="--output of a run")
    parser.add_argument("--output", type=Path, default=Path("output/robustness/page.html"))
    parser.add_argument("--worst", nargs="+", default=[], metavar="BENCHMARK:CELL",
                        help="show the images that were wrong with most confidence")  # fmt: skip
    parser.add_argument("--count", type=int, default=12, help="of them")
    parser.add_argument("--data-root", type=Path, help="where the images lie")
    parser.add_argument("--benchmark", nargs="+", type=Path, default=[], metavar="FILE.yaml")
    parser.add_argument("--generate", action="store_true", help="corrupted on the fly")
    parser.add_argument("--seed", type=int, default=0, help="of the generated corruptions")
    parser.add_argument("--frost-dir", type=Path)
    args = parser.parse_args(argv)
    return ending("python -m robustness.page", lambda: _main(args))


def _main(args: argparse.Namespace) -> int:
    runs = [Run(folder) for folder in args.folders]
    names = distinct_names([run.report for run in runs])
    generator = Generator(args.seed, args.frost_dir)
    places = Places(args.data_root, args.generate, generator)
    own = [read_benchmark(file) for file in args.benchmark]
    worst = [
        image
        for asked in args.worst
        for run, name in zip(runs, names, strict=True)
        for image in _worst(run, name, asked, args.count, places, own)
    ]
    text = to_html([run.report for run in runs], names, worst)
    write_atomically(args.output, text.encode())
    sys.stdout.write(f"written: {args.output}\n")
    return 0


def _worst(
    run: Run, name: str, asked: str, count: int, places: Places, own: list[Benchmark]
) -> Iterator[WorstImage]:
    benchmark, _, cell = asked.partition(":")
    cell = cell or "all"
    result = run.report.result(benchmark)
    tables = {} if result is None else run.tables(result)
    if cell not in tables:
        raise ConfigError(f"--worst: {run.folder} has no whole cell {benchmark}:{cell}.")
    (row,) = choose([benchmark], own)
    if row.frames:
        raise ConfigError(f"--worst shows images, and {benchmark} holds videos.")
    source = places.source(row)
    if source is None:
        raise ConfigError(f"--worst: {benchmark} is {places.looked(row)}.")
    samples = {sample.key: sample for sample in source.listing(cell).samples}
    table = tables[cell]
    order = np.argsort(-table.confidence, kind="stable")
    for place in [int(k) for k in order if not table.right[k]][:count]:
        key = table.names[place]
        if key not in samples:
            raise ConfigError(f"--worst: {key} of {benchmark}:{cell} is not in the data any more.")
        picture = source.read(samples[key], cell)
        assert not isinstance(picture, list)
        picture.thumbnail((_SIDE, _SIDE))
        said = f"class {table.predicted[place]} at {100 * table.confidence[place]:.0f} %"
        caption = (
            f"{key}: class {table.label[place]}, said {said}, right one at rank {table.rank[place]}"
        )
        yield WorstImage(f"{name}: worst images of {benchmark} {cell}", caption, picture)


if __name__ == "__main__":
    sys.exit(main())
