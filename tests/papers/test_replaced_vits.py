"""The trainings of `papers.replaced` in little: what is learned, what is written and shown."""

import pytest
import torch

from papers import replaced
from papers.replaced import ARMS, complete, main, make, read, table
from papers.replaced_tasks import TASKS
from vit_ls.config import ConfigError


def test_a_canvas_is_marked_right_by_its_classes_alone():
    task = TASKS["canvas"]
    images, classes = task.held_out()
    assert images.shape == (256, 1, 48, 48)
    same = (classes == classes[:, :1]).float()
    logits = torch.zeros(256, 37, 7)
    logits[:, 1:, 0] = same * 2 - 1
    assert task.accuracy(logits, classes) == 100
    assert task.accuracy(-logits, classes) == 0
    logits[:, 1:, 0] = 1.0
    assert task.accuracy(logits, classes) == 50
    assert not torch.equal(images[0, 0, :8, :8], images[0, 0, :8, 8:16])


@pytest.mark.parametrize("name", TASKS)
def test_a_model_takes_a_batch_of_its_task(name):
    task = TASKS[name]
    images, labels = next(task.batches(torch.Generator().manual_seed(0)))
    model = make(task, 0)
    assert task.loss(model(images), labels).isfinite()
    assert len(model.blocks) == 6


@pytest.mark.landing
def test_rows_are_written_once_and_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(replaced, "EPOCHS", (0, 1))
    short = TASKS["canvas"]._replace(epochs=1)
    monkeypatch.setattr(replaced, "TASKS", {"canvas": short})
    path = tmp_path / "rows.csv"
    found = complete(path, ["canvas"], 1, ["windows"])
    assert read(path) == {row: round(value, 2) for row, value in found.items()}
    starts = [(row[2], row[3], row[4]) for row in found]
    assert starts == [
        ("original", "labels", 1),
        *(("windows", start, epoch) for start in ("distilled", "scratch") for epoch in (0, 1)),
    ]
    before = path.read_bytes()
    complete(path, ["canvas"], 1, ["windows"])
    assert path.read_bytes() == before


def test_the_table_tells_what_was_not_run():
    found = {("digits", seed, "windows", "distilled", 0): 90.0 + seed for seed in range(3)}
    lines = table(found, "digits").splitlines()
    assert lines[3].startswith("| windows | 91.0 ± 1.0 | not run |")
    assert len(lines) == 3 + len(ARMS)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match=r"must be a file of papers.replaced"):
        read(path)
    with pytest.raises(ConfigError, match="--seeds must be positive"):
        main(["--seeds", "0"])
    with pytest.raises(ConfigError, match="--report needs a file"):
        main(["--report", "--csv", str(tmp_path / "none.csv")])
