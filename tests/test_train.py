"""train.py and validate.py as a user starts them, on the digits."""

import re
from pathlib import Path

import pytest
import yaml

import train
import validate

RESULT = re.compile(r"best val_top1=(\d+\.\d{3}) epoch=(\d+) checkpoint=(\S+)\n\Z")


def _trained(tmp_path: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> re.Match[str]:
    train.main(["--output", str(tmp_path), *flags])
    result = RESULT.search(capsys.readouterr().out)
    assert result is not None
    return result


@pytest.mark.landing
def test_a_run_leaves_its_files_and_validate_repeats_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top1, epoch, checkpoint = _trained(tmp_path, capsys, "--epochs", "2").groups()
    folder = Path(checkpoint).parent
    assert folder.parent == tmp_path
    names = {path.name for path in folder.iterdir()}
    assert {"args.yaml", "summary.csv", "curves.png", "last.pth.tar", "model_best.pth.tar"} <= names
    assert len((folder / "summary.csv").read_text().splitlines()) == 3
    assert float(top1) > 20
    assert int(epoch) in (0, 1)

    validate.main(["--model", "test_vil_ls", "--checkpoint", checkpoint])
    assert f"val_top1={top1} " in capsys.readouterr().out


@pytest.mark.landing
def test_the_written_config_alone_repeats_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _trained(tmp_path, capsys, "--epochs", "1", "--img-size", "16", "--mixup", "0.2")
    folder = Path(first[3]).parent
    settings = yaml.safe_load((folder / "args.yaml").read_text())
    assert (settings["epochs"], settings["mixup"], settings["dataset"]) == (1, 0.2, "digits")

    second = _trained(tmp_path, capsys, "--config", str(folder / "args.yaml"))
    again = Path(second[3]).parent
    assert again != folder
    assert (again / "summary.csv").read_bytes() == (folder / "summary.csv").read_bytes()


@pytest.mark.slow
def test_the_default_recipe_reaches_97_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert float(_trained(tmp_path, capsys)[1]) >= 97.0
