"""Runs on shards that are killed at any moment: each image of an epoch once, in the same order."""

import functools
import io
import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import runs
from PIL import Image
from resumed import assert_same_run
from shards import write_split

pytest.importorskip("webdataset", reason="needs the extra 'data'")

IMAGES, BATCH = 97, 4
FLAGS = [
    *("--dataset", "wds/digits", "--num-classes", str(IMAGES), "--model", "test_vil_ls"),
    *("--img-size", "16", "--epochs", "2", "--recovery-interval", "1", "--resume", "auto"),
    *("--batch-size", str(BATCH), "--val-split", "", "--max-unreadable", "0"),
]
At = tuple[int, int]
"""Epoch, and images of it that all processes have used."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    samples = []
    for number in range(IMAGES):
        file = io.BytesIO()
        Image.new("RGB", (16, 16), (number, 0, 0)).save(file, "PNG")
        samples.append({"png": file.getvalue(), "cls": str(number).encode()})
    write_split(folder, "train", samples, shards=5)
    return folder


def _record(folder: Path) -> None:
    """Let a run write down where it starts, and the labels of each update with where it then is."""
    from vit_ls.train import trainer

    ours = trainer.Trainer
    fit, after_update, following = ours.fit, ours._after_update, trainer.Timed.__next__
    file = (folder / f"{time.monotonic_ns()}-{os.getpid()}").open("a", buffering=1)
    seen: list[int] = []

    def at(run: Any) -> list[int]:
        position = run.state.content([])["position"]
        return [position["epoch"], position["images"]]

    def write(*values: Any) -> None:
        file.write(json.dumps(values) + "\n")

    def started(run: Any, stop: Any) -> Any:
        write("start", at(run))
        return fit(run, stop)

    def next_batch(stream: Any) -> Any:
        batch = following(stream)
        seen.extend(batch[1].tolist())
        return batch

    def updated(run: Any, outcome: Any) -> None:
        write(at(run), seen)
        seen.clear()
        after_update(run, outcome)

    ours.fit, ours._after_update = started, updated  # type: ignore[method-assign]
    trainer.Timed.__next__ = next_batch  # type: ignore[method-assign]


def _start(data: Path, folder: Path, processes: int, *more: str) -> list[Any]:
    argv = ["--data-dir", str(data), "--output", str(folder), "--experiment", "run", *FLAGS, *more]
    before = functools.partial(_record, folder)
    log = folder / "log"
    if processes == 1:
        return [runs.start(argv, log, before=before)]
    return runs.start_several(processes, "train", argv, log, before=before)


def _attempt(
    data: Path,
    folder: Path,
    processes: int,
    workers: int,
    updates: int | None,
    seed: float,
    *more: str,
) -> list[tuple[At, dict[At, list[int]]]]:
    """Train to the end, or until that many updates are seen, and then a moment; then kill all.

    Returns:
        What each process wrote down: where it started, and its labels up to where it then was.
    """
    before = set(folder.glob("*-*"))
    started = _start(data, folder, processes, "--workers", str(workers), *more)
    deadline = time.monotonic() + 120
    while updates is not None and any(one.exitcode is None for one in started):
        written = [path.read_text().count("\n") for path in set(folder.glob("*-*")) - before]
        if max(written, default=0) > updates:
            time.sleep(random.Random(seed).random() / 50)
            for one in started:
                one.kill()
            break
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.01)
    for one in started:
        one.join(120)
    if updates is None:
        assert [one.exitcode for one in started] == [0] * processes, (folder / "log").read_text()
    return [_read(path) for path in set(folder.glob("*-*")) - before]


def _read(path: Path) -> tuple[At, dict[At, list[int]]]:
    # A kill may leave a part of a line.
    lines = [json.loads(one) for one in path.read_text().splitlines(True) if one.endswith("\n")]
    (_, (epoch, images)), *updates = lines or [("start", (99, 0))]
    return (epoch, images), {tuple(at): labels for at, labels in updates}


def _used(attempts: Sequence[Any]) -> dict[At, list[int]]:
    """The labels of each update that counts: the last one to have come there."""
    used: dict[At, list[int]] = {}
    for attempt in attempts:
        start = min(start for start, _ in attempt)
        used = {at: labels for at, labels in used.items() if at <= start}
        for _, updates in attempt:
            for at, labels in updates.items():
                used[at] = used.get(at, []) + labels
    return used


def _of_epoch(used: dict[At, list[int]], epoch: int) -> Counter[int]:
    return sum((Counter(labels) for at, labels in used.items() if at[0] == epoch), Counter())


@pytest.mark.parametrize(
    ("processes", "workers"),
    [
        pytest.param(1, 0, marks=pytest.mark.landing),
        pytest.param(1, 2, marks=pytest.mark.landing),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 1), (3, 0), (3, 2))),
    ],
)
def test_killed_runs_use_the_same_images_in_the_same_order(
    data: Path, tmp_path: Path, processes: int, workers: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    wanted = _used([_attempt(data, whole, processes, workers, None, 0.0)])
    per_epoch = IMAGES // (BATCH * processes)
    dice = random.Random(processes * 10 + workers)
    kills = [*(dice.randrange(1, per_epoch) for _ in range(3)), None]
    found = _used([_attempt(data, killed, processes, workers, n, dice.random()) for n in kills])
    assert {at: Counter(labels) for at, labels in found.items()} == {
        at: Counter(labels) for at, labels in wanted.items()
    }
    for epoch in range(2):
        shown = _of_epoch(found, epoch)
        assert shown.total() == per_epoch * BATCH * processes
        assert set(shown.values()) == {1}
    # The sum of three gradients is rounded by its order, which may be another after a start.
    if processes < 3:
        assert_same_run(killed / "run", whole / "run")


@pytest.mark.landing
def test_another_batch_size_uses_each_image_of_the_epoch_once(data: Path, tmp_path: Path) -> None:
    sizes = [(12, 2), (8, 2), (20, None)]
    attempts = [
        _attempt(data, tmp_path, 1, 0, kill, 0.0, "--batch-size", str(size), "--resume-changed")
        for size, kill in sizes
    ]
    used = _used(attempts)
    assert attempts[1][0][0] > (0, 0)
    for epoch in range(2):
        shown = _of_epoch(used, epoch)
        assert set(shown.values()) == {1}
        assert IMAGES - 20 < shown.total() <= IMAGES


@pytest.mark.slow
@pytest.mark.parametrize("order", [(3, 1, 2), (1, 3, 2), (2, 3, 1)])
def test_another_number_of_processes_uses_each_image_of_the_epoch_once(
    data: Path, tmp_path: Path, order: tuple[int, ...]
) -> None:
    dice = random.Random(sum(n * 10**k for k, n in enumerate(order)))
    kills = [dice.randrange(2, 4), dice.randrange(2, 4), None]
    attempts = [
        _attempt(data, tmp_path, processes, dice.randrange(3), kill, dice.random())
        for processes, kill in zip(order, kills, strict=True)
    ]
    starts = [min(start for start, _ in attempt) for attempt in attempts]
    assert starts[0] == (0, 0) < starts[1] < starts[2] < (1, 0), starts
    used = _used(attempts)
    for epoch in range(2):
        shown = _of_epoch(used, epoch)
        assert set(shown.values()) == {1}
        assert IMAGES - BATCH * order[-1] < shown.total() <= IMAGES
