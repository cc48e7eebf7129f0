"""A report is not lost to another run that writes to the same folder."""

from pathlib import Path

import pytest
import torch
from colour_trees import paint
from timm import create_model
from torchvision.transforms import functional as TF

import robustness
from robustness.cli import main
from vit_ls.config import ConfigError


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command on a small benchmark of one's own, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        paint(tmp_path / f"data/tiny/{name}/x.png", 40, 32)
    text = "name: tiny\nlayout: classes\nclasses: [a, b, c]\nimages: 3\nimage_size: 32\n"
    (tmp_path / "tiny.yaml").write_text(text)
    ask = ["--model", "test_resnet", "--img-size", "32", "--workers", "0", "--data-root", "data"]
    return [*ask, "--benchmark", "tiny.yaml", "--num-classes", "3"]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--max-images", "2"], "max_images"),
        (["--model-kwargs", "global_pool=max"], "model"),
        (["--dtype", "bfloat16"], "dtype"),
        (["--verify"], "verify"),
    ],
)
def test_another_run_is_refused_and_nothing_is_lost(
    more: list[str],
    word: str,
    asked: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [*asked, "--random-weights", "--output", "out"]
    assert main(command) == 0
    before = contents(tmp_path / "out")
    assert "report.json" in before
    capsys.readouterr()
    assert main([*command, *more]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"holds the report of another run (other {word}): name another folder" in error
    assert contents(tmp_path / "out") == before
    assert main(command) == 0  # The same question may be asked again.
    assert contents(tmp_path / "out") == before
    assert main([*command, *more, "--overwrite"]) == 0
    assert contents(tmp_path / "out") != before


def test_a_report_that_nothing_tells_of_is_kept(asked: list[str], tmp_path: Path) -> None:
    report = tmp_path / "out/report.json"
    report.parent.mkdir()
    report.write_text("{}")
    command = [*asked, "--random-weights", "--output", "out"]
    assert main(command) == 2
    assert contents(tmp_path / "out") == {"report.json": b"{}"}
    (tmp_path / "out/question.json").write_text("[")
    assert main(command) == 2
    assert report.read_text() == "{}"


def test_a_run_that_was_ended_keeps_its_folder(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise KeyboardInterrupt

    command = [*asked, "--random-weights", "--output", "out"]
    with monkeypatch.context() as patch:
        patch.setattr("robustness.running.run.run_cell", ends)
        assert main(command) == 130
    before = contents(tmp_path / "out")
    assert main([*command, "--max-images", "2"]) == 2
    assert contents(tmp_path / "out") == before
    assert main(command) == 0


def test_two_checkpoints_of_one_model_write_to_two_folders(
    asked: list[str], tmp_path: Path
) -> None:
    for seed in (0, 1):
        torch.manual_seed(seed)
        torch.save(create_model("test_resnet", num_classes=3).state_dict(), f"{seed}.pth")
        assert main([*asked, "--checkpoint", f"{seed}.pth"]) == 0
    reports = list((tmp_path / "output/robustness").glob("*/report.json"))
    assert len(reports) == 2
    assert all(report.parent.name.startswith("test_resnet-") for report in reports)


@pytest.mark.usefixtures("asked")
def test_from_python_it_is_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, transform = create_model("test_resnet", num_classes=3), TF.to_tensor
    where = {"benchmarks": "tiny.yaml", "output": "out"}
    robustness.evaluate(model, transform, "data", **where)
    before = contents(tmp_path / "out")
    with pytest.raises(ConfigError, match="holds the report of another run"):
        robustness.evaluate(model, transform, "data", **where, max_images=1)
    assert contents(tmp_path / "out") == before
    robustness.evaluate(model, transform, "data", **where, max_images=1, overwrite=True)
    assert contents(tmp_path / "out") != before
