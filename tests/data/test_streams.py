"""Streams: damaged samples are named and counted, and what is no data ends in one line."""

import io
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import runs
from shards import write_split

from vit_ls.data.digits import Digits
from vit_ls.data.streaming.images import StreamedImages

pytest.importorskip("webdataset", reason="needs the extra 'data'")

CLASSES, IMAGES = 4, 10
LANDING = pytest.mark.landing
ENDS = ("train.py: ", "validate.py: ", "best val_top1=")
FLAGS = [
    *("--dataset", "wds/digits", "--model", "test_vil_ls", "--img-size", "16", "--epochs", "1"),
    *("--batch-size", "4", "--experiment", "run", "--num-classes", str(CLASSES)),
]

Change = Callable[[int, bytes, bytes], tuple[bytes, bytes]]
"""What becomes of an image and its label."""


def _kept(_: int, image: bytes, label: bytes) -> tuple[bytes, bytes]:
    return image, label


def _damaged(first: int) -> Change:
    """The first ones are cut short."""
    return lambda number, image, label: (image[:70] if number < first else image, label)


def _labelled(label: str) -> Change:
    return lambda _, image, was: (image, label.encode() if was == b"1" else was)


def _samples() -> list[tuple[bytes, bytes]]:
    digits = Digits(held_out=True)
    found = []
    for image, label in itertools.islice((d for d in digits if d[1] < CLASSES), 2 * IMAGES):
        file = io.BytesIO()
        image.save(file, "PNG")
        found.append((file.getvalue(), str(label).encode()))
    return found


def _write(
    folder: Path, *, train: Change = _kept, held_out: Change = _kept, shards: int = 1
) -> str:
    """Two splits of 10 images each, in so many shards."""
    samples = _samples()
    for split, change, mine in (
        ("train", train, samples[:IMAGES]),
        ("validation", held_out, samples[IMAGES:]),
    ):
        changed = [change(number, *sample) for number, sample in enumerate(mine)]
        write_split(folder, split, [{"png": image, "cls": c} for image, c in changed], shards)
    return str(folder)


def _streamed(data: str) -> str:
    """The same shards by an address: they are read in order, not by place."""
    return f"file://{data}"


def _train(data: str, output: Path, *argv: str) -> tuple[int, str]:
    log = output / "log"
    log.unlink(missing_ok=True)
    status = runs.finish([data, *FLAGS, "--output", str(output), *argv], log)
    return status, log.read_text()


def _validate(data: str, output: Path, *argv: str) -> tuple[int, str]:
    log = output / "validation.log"
    log.unlink(missing_ok=True)
    weights = ["--checkpoint", str(output / "run" / "last.pth.tar"), "--workers", "0"]
    status = runs.finish([*weights, "--data-dir", data, *argv], log, script="validate")
    return status, log.read_text()


def _ends_with(log: str, *words: str) -> None:
    # A loading process may still name a damaged sample after it.
    (last,) = [line for line in log.splitlines() if line.startswith(ENDS)]
    assert all(word in last for word in words), log
    assert "Traceback" not in log


@pytest.mark.parametrize("workers", [pytest.param("0", marks=LANDING), "2"])
@pytest.mark.parametrize("streamed", [False, True])
def test_damaged_samples_are_named_and_counted(
    tmp_path: Path, streamed: bool, workers: str
) -> None:
    data = _write(tmp_path, train=_damaged(1), held_out=_damaged(2))
    data, ending = (_streamed(data), "") if streamed else (data, ".png")
    # Named once, not in each epoch; of 10 images 8 fill batches, so the flag is set by the second.
    status, log = _train(data, tmp_path, "--workers", workers, "--epochs", "4")
    assert status == 0, log
    assert ("wds/digits is a stream: a run that goes on reads its used part" in log) == streamed
    what = "left out" if streamed else "replaced by the next"
    (line,) = [line for line in log.splitlines() if what in line]
    assert f"digits-train-0.tar/00000{ending}: " in line
    assert log.count(f"counted as wrong: digits-validation-0.tar/00001{ending}: ") == 4
    assert "unreadable=1" in log
    assert "eval_unreadable=2" in log
    status, log = _validate(data, tmp_path)
    assert status == 0, log
    assert f"images={IMAGES} " in log
    assert "unreadable=2" in log


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=LANDING)])
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("3", "--max-unreadable 3 is exceeded: digits-train-0.tar/0000"),
        ("99", "the training split 'train' has no image that can be read for loading process "),
    ],
)
def test_a_stream_of_damaged_samples_ends(
    tmp_path: Path, workers: str, limit: str, reason: str
) -> None:
    data = _streamed(_write(tmp_path, train=_damaged(IMAGES)))
    status, log = _train(data, tmp_path, "--workers", workers, "--max-unreadable", limit)
    assert status == 1
    _ends_with(log, reason)
    assert not list((tmp_path / "run").glob("*best*"))


@pytest.mark.parametrize(
    ("broken", "limit", "reason"),
    [
        (IMAGES, "99", "the split 'validation' cannot be evaluated on: none of its 10 images can"),
        (3, "2", "--max-unreadable 2 is exceeded: 3 of 10 images of the split 'validation' cannot"),
    ],
)
def test_an_evaluation_of_damaged_samples_is_none(
    tmp_path: Path, broken: int, limit: str, reason: str
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder, change in ((good, _kept), (bad, _damaged(broken))):
        folder.mkdir()
        _write(folder, held_out=change)
    limits = ["--max-unreadable", limit]
    status, log = _train(str(bad), tmp_path, "--workers", "0", "--eval-metric", "loss", *limits)
    assert status == 1
    _ends_with(log, reason)
    assert not list((tmp_path / "run").glob("*.pth.tar"))
    assert _train(str(good), tmp_path / "good", "--workers", "0")[0] == 0
    status, log = _validate(str(bad), tmp_path / "good", *limits)
    assert status == 1
    _ends_with(log, reason)


def test_a_folder_of_damaged_images_is_no_evaluation_either(
    digit_folder: Path, tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        (tmp_path / split).mkdir()
        for label in range(CLASSES):
            (tmp_path / split / str(label)).symlink_to(digit_folder / split / str(label))
    for label in range(CLASSES):
        (tmp_path / "validation" / str(label)).unlink()
        (tmp_path / "validation" / str(label)).mkdir()
        (tmp_path / "validation" / str(label) / "x.png").write_bytes(b"")
    argv = ["--dataset", "", "--workers", "0", "--eval-metric", "loss"]
    status, log = _train(str(tmp_path), tmp_path, *argv)
    assert status == 1
    _ends_with(log, "the split 'validation' cannot be evaluated on: none of its 4 images can be")


@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=LANDING)])
@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("cat", "must be a whole number, got 'cat'."),
        ("4", "must be from 0 to 3 (--num-classes), got 4."),
        pytest.param("-1", "must be from 0 to 3 (--num-classes), got -1.", marks=LANDING),
    ],
)
def test_a_label_that_is_none_ends_in_one_line(
    tmp_path: Path, split: str, label: str, reason: str, workers: str
) -> None:
    side = "train" if split == "train" else "held_out"
    data = _write(tmp_path, **{side: _labelled(label)})  # type: ignore[arg-type]
    status, log = _train(data, tmp_path, "--workers", workers)
    assert status == 1, log
    _ends_with(log, f"the label of digits-{split}-0.tar/0000", reason)


def _no_images() -> None:
    StreamedImages.__iter__ = lambda _: iter(())  # type: ignore[method-assign]


def test_an_epoch_without_images_is_an_error(tmp_path: Path) -> None:
    data, log = _streamed(_write(tmp_path)), tmp_path / "log"
    argv = [data, *FLAGS, "--workers", "0", "--output", str(tmp_path)]
    assert runs.finish(argv, log, before=_no_images) == 1
    _ends_with(log.read_text(), "the training split 'train' gave no image in epoch 0: nothing was")
    assert not list((tmp_path / "run").glob("*.pth.tar"))


def test_an_empty_evaluation_is_an_error(tmp_path: Path) -> None:
    data, log = _streamed(_write(tmp_path)), tmp_path / "validation.log"
    argv = ["--data-dir", data, *FLAGS[:4], "--random-weights", "--workers", "0"]
    assert runs.finish(argv, log, script="validate", before=_no_images) == 1
    _ends_with(log.read_text(), "the split 'validation' cannot be evaluated on: it is empty.")


def _in_a_table(folder: Path, labels: Sequence[int]) -> str:
    """Images and labels that are numbers without names, as Hugging Face's package reads them."""
    datasets = pytest.importorskip("datasets", reason="needs the extra 'data'")
    for split, samples in zip(("train", "validation"), (_samples(), _samples()[::-1]), strict=True):
        rows = [
            {"image": {"bytes": image + split.encode(), "path": None}, "label": label}
            for (image, _), label in zip(samples, labels, strict=False)
        ]
        table = datasets.Dataset.from_list(rows).cast_column("image", datasets.Image())
        table.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return f"hfds/{folder}"


@pytest.mark.parametrize(
    ("last", "flags", "status", "reason"),
    [
        (3, ["--num-classes", "4"], 0, "best val_top1="),
        (3, [], 2, "does not say how many classes it has"),
        (4, ["--num-classes", "4"], 1, "must be from 0 to 3 (--num-classes), got 4."),
        pytest.param(-1, ["--num-classes", "4"], 1, "must be from 0 to 3", marks=LANDING),
        (3, ["--input-key", "img"], 2, "--input-key img must be one of image, label."),
        (3, ["--target-key", "y"], 2, "--target-key y must be one of image, label."),
    ],
)
def test_hugging_face_data_is_trained_on_or_ends_in_one_line(
    tmp_path: Path, last: int, flags: list[str], status: int, reason: str
) -> None:
    (tmp_path / "data").mkdir()
    dataset, cache = _in_a_table(tmp_path / "data", [0, 1, 2, last]), str(tmp_path / "cache")
    log, env = tmp_path / "log", {"HF_HUB_OFFLINE": "1", "HF_HOME": cache}
    argv = [*FLAGS[2:-2], "--dataset", dataset, "--data-dir", cache, "--workers", "0"]
    argv += ["--output", str(tmp_path), *flags]
    assert runs.finish(argv, log, env=env) == status, log.read_text()
    _ends_with(log.read_text(), reason)


def test_repeats_that_its_reader_passes_over_are_refused(tmp_path: Path) -> None:
    data = _write(tmp_path)
    status, log = _train(data, tmp_path, "--workers", "0", "--epoch-repeats", "2")
    assert status == 2
    _ends_with(log, "--epoch-repeats is for tfds/ and hfids/: of wds/ --train-num-samples says")


def test_the_number_of_classes_is_asked_for(tmp_path: Path) -> None:
    data = _write(tmp_path)
    log = tmp_path / "log"
    assert runs.finish([data, *FLAGS[:-2], "--workers", "0"], log) == 2
    assert log.read_text().endswith(
        "train.py: --num-classes N is needed: wds/digits does not say how many classes it has.\n"
    )


@pytest.mark.parametrize("split", [pytest.param("train", marks=LANDING), "validation"])
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (
            lambda shard: shard.write_bytes(shard.read_bytes()[:5000]),
            "unexpected end of data",
        ),
        (lambda shard: shard.unlink(), "[Errno 2] No such file or directory"),
    ],
)
def test_a_shard_that_is_not_whole_ends_in_one_line(
    tmp_path: Path, split: str, harm: Callable[[Path], object], reason: str
) -> None:
    data = _write(tmp_path, shards=2)
    harm(tmp_path / f"digits-{split}-1.tar")
    status, log = _train(data, tmp_path, "--workers", "1")
    assert status == 1
    _ends_with(log, f"the shard digits-{split}-1.tar cannot be read: {reason}")


def test_a_held_out_shard_with_fewer_samples_than_said_is_named(tmp_path: Path) -> None:
    data = _write(tmp_path)
    info = json.loads((tmp_path / "_info.json").read_text())
    info["splits"]["validation"]["shard_lengths"] = [12]
    (tmp_path / "_info.json").write_text(json.dumps(info))
    status, log = _train(data, tmp_path, "--workers", "0")
    assert status == 1
    _ends_with(log, "the shard digits-validation-0.tar must have 12 samples, got 10.")


def _both(script: str, argv: Sequence[str], log: Path) -> tuple[list[int | None], str]:
    log.unlink(missing_ok=True)
    processes = runs.start_two(script, argv, log)
    for process in processes:
        process.join(90)
    return [process.exitcode for process in processes], log.read_text()


@LANDING
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("streamed", [False, True])
def test_two_processes_count_each_sample_once(
    tmp_path: Path, streamed: bool, shards: int, workers: str
) -> None:
    data = _write(tmp_path, held_out=_damaged(3), shards=shards)
    data = _streamed(data) if streamed else data
    argv = [data, *FLAGS, "--output", str(tmp_path), "--workers", workers]
    statuses, log = _both("train", argv, tmp_path / "log")
    assert statuses == [0, 0], log
    assert "eval_unreadable=3" in log
    table = tmp_path / "classes.csv"
    weights = ["--checkpoint", str(tmp_path / "run" / "last.pth.tar"), "--workers", workers]
    argv = [*weights, "--per-class", str(table)]
    statuses, log = _both("validate", argv, tmp_path / "log")
    assert statuses == [0, 0], log
    line = next(line for line in log.splitlines() if "images=" in line)
    assert f"images={IMAGES} " in line
    counts = [int(row.split(",")[2]) for row in table.read_text().splitlines()[1:]]
    assert (sum(counts), counts[0]) == (IMAGES, 3)
    alone, log = _validate(data, tmp_path)
    (single,) = [one for one in log.splitlines() if "images=" in one]
    assert alone == 0
    assert single.partition(" images_s")[0] == line.partition(" images_s")[0]


@LANDING
def test_two_processes_end_where_all_samples_are_damaged(tmp_path: Path) -> None:
    data = _streamed(_write(tmp_path, train=_damaged(IMAGES)))
    argv = [data, *FLAGS, "--output", str(tmp_path), "--workers", "1", "--max-unreadable", "3"]
    statuses, log = _both("train", [*argv, "--dist-timeout", "20"], tmp_path / "log")
    assert statuses == [1, 1]
    assert "--max-unreadable 3 is exceeded: " in log
    assert "Traceback" not in log


def test_settings_that_do_nothing_here_are_named(tmp_path: Path) -> None:
    data = _write(tmp_path)
    status, log = _train(data, tmp_path, "--workers", "0", "--dataset-download")
    assert status == 0
    warning = "--dataset-download has no effect: it needs --dataset tfds/, hfids/, or torch/ with"
    assert log.count(warning) == 1
    status, log = _validate(data, tmp_path, "--dataset-download")
    assert status == 0
    assert log.count(warning) == 1


def test_the_speed_of_one_batch_is_left_out(tmp_path: Path) -> None:
    data = _write(tmp_path)
    assert _train(data, tmp_path, "--workers", "0")[0] == 0
    status, log = _validate(data, tmp_path, "--batch-size", str(IMAGES))
    assert status == 0
    assert "images_s=" not in log
    assert "images_s is left out: it is measured from the second batch on." in log
    assert " images_s=" in _validate(data, tmp_path, "--batch-size", "4")[1]
