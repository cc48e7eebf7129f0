"""Shards on a disk: counted once, read by place, each sample of an epoch once."""

import gzip
import io
import json
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from data_config import DATA
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from shards import Sample, write_split

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data import Images, eval_loader, open_images, open_splits, train_batches
from vit_ls.data.errors import DataError
from vit_ls.data.seeded import EpochSampler
from vit_ls.data.streaming import index, order
from vit_ls.data.streaming.order import AnyOrder, ShardOrder
from vit_ls.job import Ranks
from vit_ls.run.state import RunState

pytest.importorskip("webdataset", reason="needs the extra 'data'")
CPU = Ranks(torch.device("cpu"))
COUNTS = {"train": 40, "validation": 11}


def _sample(number: int) -> Sample:
    """A picture of one colour, which says its number; the label too."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (number, number, number)).save(file, "PNG")
    return {"png": file.getvalue(), "cls": str(number).encode()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for split, count in COUNTS.items():
        write_split(tmp_path, split, [_sample(number) for number in range(count)], shards=3)
    return tmp_path


def _config(data: Path, **more: Any) -> TrainConfig:
    place = {"dataset": "wds/digits", "data_dir": str(data), "num_classes": 40}
    return replace(TrainConfig(workers=0, batch_size=4, no_aug=True), **place, **more)


def _labels(images: Images, config: TrainConfig, epoch: int = 0) -> list[int]:
    batches = train_batches(images, config, DATA, CPU).epoch(epoch)
    return torch.cat([labels for _, labels in batches]).tolist()


def _not_read(*_: object) -> NoReturn:
    raise AssertionError("a shard was read")


def test_an_epoch_shows_each_sample_once_in_an_order_of_its_own(data: Path) -> None:
    config = _config(data)
    train, held_out, _ = open_splits(config)
    assert held_out is not None
    first, second = (_labels(train, config, epoch) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(COUNTS["train"]))
    assert first != second
    assert first == _labels(train, replace(config, workers=2))
    read = torch.cat([labels for _, labels in eval_loader(held_out, config, DATA, CPU)])
    assert read.tolist() == [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8]  # of one shard after the other


def test_an_image_is_that_of_its_label(data: Path) -> None:
    dataset = open_images(_config(data), "train", training=True).dataset
    assert all(
        image.getpixel((0, 0)) == (label,) * 3
        for image, label in map(dataset.__getitem__, range(40))
    )
    assert dataset.filename(0) == "digits-train-0.tar/00000.png"
    assert dataset.filenames(basename=True)[:2] == ["00000.png", "00003.png"]


def test_samples_are_counted_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_images(_config(data), "train")
    assert (data / index.INDEX).is_file()
    monkeypatch.setattr(index, "_scanned", _not_read)
    again = open_images(_config(data), "train")
    assert again.listing == found.listing
    assert len(again.dataset) == COUNTS["train"]
    with pytest.raises(AssertionError, match="a shard was read"):
        open_images(_config(data), "validation")


def test_a_shard_of_another_size_is_counted_again_and_no_other(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_images(_config(data), "train").listing
    # A tar is filled up to whole 10 240 bytes: 12 more samples in the first shard change its size.
    write_split(data, "other", [_sample(number) for number in range(26)])
    (data / "digits-other-0.tar").replace(data / "digits-train-0.tar")
    info = json.loads((data / "_info.json").read_text())
    info["splits"]["train"]["shard_lengths"][0] = 26
    (data / "_info.json").write_text(json.dumps(info))
    read, scan = [], index._scanned

    def scanned(root: Path, name: str, key: str) -> Any:
        read.append(name)
        return scan(root, name, key)

    monkeypatch.setattr(index, "_scanned", scanned)
    images = open_images(_config(data), "train")
    assert read == ["digits-train-0.tar"]
    assert len(images.dataset) == 26 + 13 + 13
    assert images.listing != before


@pytest.mark.parametrize("harm", [b"", b"PK\x03\x04 nothing", None])
def test_a_damaged_index_is_named_and_made_anew(
    data: Path, harm: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    open_images(_config(data), "train")
    file = data / index.INDEX
    file.write_bytes(file.read_bytes()[:-300] if harm is None else harm)
    assert len(open_images(_config(data), "train").dataset) == COUNTS["train"]
    assert f"{file} cannot be read and is made anew" in caplog.text
    caplog.clear()
    open_images(_config(data), "train")
    assert not caplog.text


def test_an_index_that_cannot_be_kept_is_said(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    (data / index.INDEX).mkdir()
    assert len(open_images(_config(data), "train").dataset) == COUNTS["train"]
    assert "the samples are counted again at each start: " in caplog.text


def test_a_shard_with_other_content_of_the_same_size_is_one_line(data: Path) -> None:
    images = open_images(_config(data), "train")
    shard = data / "digits-train-1.tar"
    content = shard.read_bytes()
    shard.write_bytes(content[512:] + content[:512])
    with pytest.raises(DataError, match=r"digits-train-1.tar is not the one that was counted: del"):
        images.dataset[20]


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (lambda c: c[:9000], DataError, "cannot be read: unexpected end of data."),
        (lambda c: c[:8192], DataError, "cannot be read: after 4 samples it is cut short or dam"),
        (lambda c: c[:8000], DataError, "cannot be read: unexpected end of data."),
        (lambda c: c[:8292], DataError, "cannot be read: after 4 samples it is cut short or dam"),
        (lambda c: c[:8192] + c[100:], DataError, "cannot be read: after 4 samples it is cut sho"),
        (lambda _: b"no tar at all" * 99, DataError, "cannot be read: "),
        (gzip.compress, ConfigError, "must not be compressed, got gzip: unpack it"),
    ],
)
def test_what_is_no_whole_shard_is_one_line(
    data: Path, harm: Any, error: type[Exception], message: str
) -> None:
    shard = data / "digits-train-2.tar"
    shard.write_bytes(harm(shard.read_bytes()))
    with pytest.raises(error, match=f"^the shard digits-train-2.tar {message}"):
        open_images(_config(data), "train", training=True)
    assert not (data / index.INDEX).exists()


def test_shards_that_disagree_with_what_is_said_of_them_are_one_line(data: Path) -> None:
    info = json.loads((data / "_info.json").read_text())
    info["splits"]["train"]["shard_lengths"][1] = 99
    (data / "_info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"digits-train-1.tar must have 99 samples, got 13\."):
        open_images(_config(data), "train", training=True)


def test_samples_that_are_marked_as_of_another_set_are_left_out(tmp_path: Path) -> None:
    labels = [3, -1, 0, -1, 2]
    samples = [{**_sample(n), "json": json.dumps({"y": y}).encode()} for n, y in enumerate(labels)]
    write_split(tmp_path, "validation", samples)
    config = _config(tmp_path, target_key="y")
    dataset = open_images(config, "validation").dataset
    assert [dataset[number][1] for number in range(len(dataset))] == [3, 0, 2]
    assert len(open_images(_config(tmp_path), "validation").dataset) == 5  # by the labels in cls


def test_shards_need_no_number_of_samples_on_a_disk(data: Path) -> None:
    (data / "_info.json").unlink()
    config = _config(data, train_split="digits-train-{0..2}.tar", val_split="")
    assert len(open_splits(config)[0].dataset) == COUNTS["train"]
    with pytest.raises(ConfigError, match=r"--train-num-samples N is needed: .* only shards on a"):
        open_splits(replace(config, data_dir=f"file://{data}"))


@pytest.mark.parametrize("length", [12, 40, 100])
def test_an_epoch_has_as_many_images_as_are_asked_for(data: Path, length: int) -> None:
    config = _config(data, train_num_samples=length)
    shown = Counter(_labels(open_splits(config)[0], config))
    assert shown.total() == length
    assert max(shown.values()) - min(shown.get(n, 0) for n in range(40)) <= 1


def test_an_evaluation_of_another_number_of_images_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match="is that of the shards here, 11, got 10"):
        open_splits(_config(data, val_num_samples=10))


def test_processes_that_start_together_count_once(data: Path) -> None:
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            _open_and_exit(data)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len((data / "scans").read_text().split()) == 3


def _open_and_exit(data: Path) -> NoReturn:
    """In a process of its own: leave a mark for each shard that is read."""
    status, scan = 1, index._scanned

    def scanned(*args: Any) -> Any:
        with (data / "scans").open("a") as file:
            file.write(f"{args[1]}\n")
        return scan(*args)

    index._scanned = scanned
    try:
        open_images(_config(data), "train")
        status = 0
    finally:
        os._exit(status)


# Orders


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any),
    length=st.none() | st.integers(1, 60),
    lanes=st.integers(1, 5),
    mixed=st.integers(1, 9),
)
def test_each_pass_of_shards_has_each_sample_once(
    counts: list[int], length: int | None, lanes: int, mixed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "LANES", lanes)
        patch.setattr(order, "MIXED", mixed)
        shown = ShardOrder(counts, length)
        found, one_pass = shown().tolist(), sum(counts)
    assert len(found) == len(shown) == (one_pass if length is None else length)
    for first in range(0, len(found) - one_pass + 1, one_pass):
        assert sorted(found[first : first + one_pass]) == list(range(one_pass))


def test_a_process_reads_shards_of_its_own() -> None:
    counts = [100] * (2 * order.LANES)
    shards_of = ShardOrder(counts)() // 100
    for processes in (2, 3, 8):
        mine = [set(shards_of[rank::processes].tolist()) for rank in range(processes)]
        assert sum(map(len, mine)) == len(counts)


def test_few_shards_are_open_at_a_time() -> None:
    shards_of = (ShardOrder([2000] * 500)() // 2000).tolist()
    assert all(len(set(shards_of[at : at + 5000])) <= 3 * order.LANES for at in (0, 500_000))


@given(
    images=st.integers(1, 300),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    stops=st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_an_epoch_of_changing_numbers_of_processes_shows_each_image_once(
    images: int, sizes: list[int], stops: list[int]
) -> None:
    shown: list[int] = []
    position = {"epoch": 0, "images": 0, "shift": 0, "updates": 0, "skipped": 0}
    saved_by = sizes[0]
    for processes, stop in zip(sizes, [*stops[: len(sizes) - 1], None], strict=True):
        content = {"position": position, "ranks": saved_by * [_OF_RANK], "summary": []}
        state = _resumed(content, processes)
        used = 0
        for rank in range(processes):
            sampler = EpochSampler(
                AnyOrder(images), BATCH, seed=1, rank=rank, world_size=processes, repeats=0
            )
            sampler.start, sampler.shift = state.at.batch, state.at.shift
            batches = list(sampler)[:stop]
            used = len(batches)
            shown += [key.image for batch in batches for key in batch]
        position["images"] += used * BATCH * processes
        position["shift"], saved_by = state.at.shift, processes
    assert len(shown) == len(set(shown)) == position["images"]
    assert len(shown) > images - BATCH * sizes[-1]  # less what fills no batch


BATCH = 2
_OF_RANK = {"loss_sum": 0.0, "images": 0}


def _resumed(content: dict[str, Any], processes: int) -> RunState:
    """Of a run of so many processes that goes on from a checkpoint, as far as its position goes."""
    nothing: Any = None
    config = TrainConfig(batch_size=BATCH)
    state = RunState(config, Ranks(CPU.device, 0, processes), nothing, nothing, None, None)
    state.load_position(content, reseeded=True)
    return state


@pytest.mark.slow
def test_the_end_of_a_large_epoch_is_entered_within_seconds(tmp_path: Path) -> None:
    """100 000 samples in 100 shards: prints what counting, opening and entering took."""
    write_split(tmp_path, "train", [_sample(7)] * 1000)
    first = tmp_path / "digits-train-0.tar"
    for number in range(1, 100):
        shutil.copy(first, tmp_path / f"digits-train-{number}.tar")
    (tmp_path / "_info.json").unlink()
    split = "digits-train-{0..99}.tar"
    config = _config(tmp_path, train_split=split, val_split="", batch_size=64)
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        batches = train_batches(open_splits(config)[0], config, DATA, CPU)
        seconds.append(time.perf_counter() - started)
        images, _ = next(iter(batches.epoch(0, len(batches) - 1)))
        seconds.append(time.perf_counter() - started)
    assert len(images) == 64
    sys.stdout.write(f"counted {seconds[0]:.1f} s, entered {seconds[3]:.2f} s\n")
    assert seconds[3] < 5
