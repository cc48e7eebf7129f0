"""Which checkpoints are kept: as timm's saver does, but as a function of the summary."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.utils import CheckpointSaver

from vit_ls.run.checkpoint import newest_checkpoint, read_checkpoint
from vit_ls.run.retention import Position, Ranking, Saver


class _Timm(CheckpointSaver):
    """timm's saver, writing a line instead of a model."""

    def _save(self, save_path: str, epoch: int, metric: float | None = None) -> None:  # noqa: ARG002
        Path(save_path).write_text(str(epoch))


def _content(epoch: int, batch: int, number: int) -> dict[str, Any]:
    return {
        "state_dict": {"weight": torch.full((3,), float(number))},
        "epoch": epoch if batch else epoch - 1,
        "arch": "net",
        "position": {"epoch": epoch, "batch": batch, "images": batch},
    }


def _save(saver: Saver, metrics: list[float | None], decreasing: bool) -> None:
    epoch = len(metrics) - 1
    ranking = Ranking.of(dict(enumerate(metrics)), decreasing=decreasing)
    saver.save_epoch(epoch, _content(epoch + 1, 0, epoch), ranking)


def _numbers(folder: Path) -> dict[str, int]:
    files = folder.glob("*.pth.tar")
    return {one.name: int(read_checkpoint(one)["state_dict"]["weight"][0]) for one in files}


def _states(folder: Path) -> int:
    return len({path.stat().st_ino for path in folder.glob("*.pth.tar")})


@given(
    metrics=st.lists(st.none() | st.integers(0, 3).map(float), min_size=1, max_size=8),
    keep=st.integers(1, 4),
    decreasing=st.booleans(),
)
def test_the_same_epochs_are_kept_as_by_timm(
    tmp_path_factory: pytest.TempPathFactory,
    metrics: list[float | None],
    keep: int,
    decreasing: bool,
) -> None:
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    timm = _Timm(None, None, None, checkpoint_dir=str(theirs), decreasing=decreasing)
    timm.max_history = keep
    saver = Saver(ours, keep=keep)
    for epoch, metric in enumerate(metrics):
        timm.save_checkpoint(epoch, metric)
        _save(saver, metrics[: epoch + 1], decreasing)
        found = {name: n for name, n in _numbers(ours).items() if "recovery" not in name}
        assert found == {one.name: int(one.read_text()) for one in theirs.glob("*.pth.tar")}
        assert _states(ours) >= min(epoch + 1, 2)


def test_timm_takes_the_history_over(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep=2)
    metrics = [1.0, 3.0, 2.0]
    for epoch in range(3):
        _save(saver, metrics[: epoch + 1], decreasing=False)
    timm = CheckpointSaver(None, None, checkpoint_dir=str(tmp_path), max_history=2)
    assert timm.load_state_dict_from_checkpoint(str(tmp_path / "last.pth.tar"))
    files = [(Path(path).name, metric) for path, metric in timm.checkpoint_files]
    assert files == [("checkpoint-1.pth.tar", 3.0), ("checkpoint-2.pth.tar", 2.0)]
    assert (timm.best_epoch, timm.best_metric) == (1, 3.0)


def test_a_metric_that_is_no_number_ranks_nothing() -> None:
    ranking = Ranking.of({0: float("nan"), 1: 0.5, 2: None}, decreasing=True)
    assert ranking.epochs == ((1, 0.5), (2, None), (0, None))
    assert Ranking.of({0: float("nan")}, decreasing=True).best == (None, None)


def test_recovery_files_of_the_two_newest_states_stay(tmp_path: Path) -> None:
    saver, none = Saver(tmp_path, keep=1), Ranking()
    for batch in (2, 4, 6):
        saver.save_recovery(Position(0, batch), _content(0, batch, batch), none)
    assert _numbers(tmp_path) == {"recovery-0-4.pth.tar": 4, "recovery-0-6.pth.tar": 6}
    _save(saver, [1.0], decreasing=False)
    names = {"recovery-0-6", "last", "checkpoint-0", "model_best"}
    assert _numbers(tmp_path).keys() == {f"{name}.pth.tar" for name in names}


def test_without_links_the_same_files_are_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    folders = tmp_path / "links", tmp_path / "copies"
    for folder in folders:
        folder.mkdir()
        if folder.name == "copies":
            monkeypatch.setattr("os.link", refuse)
        for epoch in range(3):
            _save(Saver(folder, keep=1, milestones=[2]), [3.0, 1.0, 2.0][: epoch + 1], False)
    assert _numbers(folders[0]) == _numbers(folders[1])
    assert "milestone-2.pth.tar" in _numbers(folders[1])
    assert _states(folders[1]) > _states(folders[0])


def test_the_newest_state_is_continued_from(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep=2)
    assert newest_checkpoint(tmp_path, "net") is None
    _save(saver, [1.0], decreasing=False)
    saver.save_recovery(Position(1, 3), _content(1, 3, 9), Ranking())
    found = newest_checkpoint(tmp_path, "net")
    assert found is not None
    assert found[0].name == "recovery-1-3.pth.tar"
