"""A run that ends in the middle of any suite goes on to the same bytes."""

import json
from pathlib import Path

import pytest
from colour_trees import Bench, film, paint, wnid

from robustness.data.benchmarks import BENCHMARKS, Benchmark
from robustness.reporting.report import write_report
from robustness.running import run

# Trees of one layout take the same way; each of them takes seconds.
LONG = ("imagenet-c-paper", "imagenet-c-generated", "imagenet-c-bar", "imagenet-3dcc", "imagenet-p")
SUITES = [
    pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
    for name in BENCHMARKS
    if name != "digits"
]


def plant(bench: Bench, row: Benchmark) -> None:
    """One image in each cell of a benchmark, in its layout."""
    classes = {"in9": "02_wheeled vehicle", "v2": "6", "objectnet": "alarm_clock"}
    name = classes.get(str(row.classes), wnid(6))
    for cell in row.cells:
        folder = bench.root / row.folders[0]
        if row.layout == "list":
            lists = folder / "benchmark_imglist/imagenet"
            lists.mkdir(parents=True, exist_ok=True)
            label = 6 if row.labelled else -1
            (lists / f"{row.classes}.txt").write_text(f"{row.name}/1.png {label}\n")
            paint(folder / "images_largescale" / row.name / "1.png", 6)
            continue
        if row.frames:
            film(folder / cell / name / "ILSVRC2012_val_00000001.mp4", [6] * row.frames_of(cell))
            continue
        if row.layout == "corruptions":
            folder = folder / cell
        elif row.layout == "in9":
            folder = folder / cell / "val"
        elif row.layout == "objectnet":
            (folder / "mappings").mkdir(parents=True, exist_ok=True)
            for file, content in (
                ("folder_to_objectnet_label", {"alarm_clock": "Alarm clock"}),
                ("objectnet_to_imagenet_1k", {"Alarm clock": "analog clock; digital clock"}),
            ):
                (folder / f"mappings/{file}.json").write_text(json.dumps(content))
            folder = folder / "images"
        paint(folder / name / "ILSVRC2012_val_00000001.png", 6)


def written(bench: Bench, suites: dict[str, int]) -> dict[str, bytes]:
    write_report(bench.run(suites), bench.output)
    files = (path for path in sorted(bench.output.rglob("*")) if path.is_file())
    return {str(path.relative_to(bench.output)): path.read_bytes() for path in files}


@pytest.mark.landing
@pytest.mark.parametrize("suite", SUITES)
def test_a_run_that_ends_in_the_middle_goes_on_to_the_same_bytes(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = BENCHMARKS[suite]
    clean = BENCHMARKS["imagenet-val"]
    (tmp_path / "whole").mkdir()
    whole, broken = Bench(tmp_path / "whole"), Bench(tmp_path)
    broken.root = whole.root
    # Two suites, so that there is a middle also where a suite has but one cell.
    for planted in {clean, row}:
        plant(whole, planted)
    ask = {name: 1 for name in BENCHMARKS if name in (clean.name, suite)}
    expected = written(whole, ask)

    evaluate, done = run.run_cell, []

    def ends(*arguments: object) -> object:
        if len(done) > len(row.cells) // 2:
            raise KeyboardInterrupt
        done.append(arguments)
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "run_cell", ends)
    if len(ask) > 1 or len(row.cells) > 1:
        with pytest.raises(KeyboardInterrupt):
            written(broken, ask)
    monkeypatch.setattr(run, "run_cell", evaluate)
    assert written(broken, ask) == expected
