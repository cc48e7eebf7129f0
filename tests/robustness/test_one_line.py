"""What a user or a machine can get wrong is one line or a named gap, never a traceback."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colour_trees import paint
from torch import nn
from torchvision.transforms import functional as TF

import robustness
from robustness import analyse, compare, corrupt, page
from robustness.cli import main
from robustness.rules.metrics import metrics
from robustness.rules.results import Report
from robustness.running.identity import weights_digest
from robustness.running.options import Options
from vit_ls.config import ConfigError

ROOT = Path(__file__).parents[2]


class Brightest(nn.Module):
    """Answers with the place of the brightest channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


def own(folder: Path, *, side: int | None = 32) -> dict[str, Any]:
    for number in range(3):
        paint(folder / f"data/mine/red/{number}.png", 800, 32)
    text = "name: mine\nlayout: classes\nclasses: [red, green, blue]\nimages: 3\n"
    file = folder / "mine.yaml"
    file.write_text(text + ("" if side is None else f"image_size: {side}\n"))
    return {"data_root": folder / "data", "benchmarks": [file]}


def said_by(model: nn.Module, transform: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        robustness.evaluate(model, transform, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def top1(report: Report) -> tuple[int | None, int | None]:
    metric = next(m for m in metrics(report) if m.name == "top-1")
    return metric.right, metric.images


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (lambda t: {"image": t}, r"transform must give a tensor [C, H, W], got dict."),
        (lambda t: (t, t), "got tuple."),
        (lambda t: t.numpy(), "got ndarray."),
        (TF.to_pil_image, "got Image."),
        (lambda t: t[None], "got one of shape (1, 3, 32, 32)."),
    ],
)
def test_transforms_that_give_no_tensor(
    give: Callable[[torch.Tensor], Any], words: str, tmp_path: Path
) -> None:
    error = said_by(Brightest(), lambda p: give(TF.to_tensor(p)), **own(tmp_path))
    assert words in error


@pytest.mark.parametrize("workers", [0, 1])
def test_transforms_that_fail_on_an_image(workers: int, tmp_path: Path) -> None:
    asked = own(tmp_path)
    paint(tmp_path / "data/mine/red/2.png", 900, 32)

    def transform(picture: Any) -> Any:
        if picture.getpixel((0, 0)) == (228, 36, 0):
            raise KeyError("of one kind\nin two lines")
        return TF.to_tensor(picture)

    error = said_by(Brightest(), transform, **asked, workers=workers)
    assert error.startswith("transform cannot take red/2.png: ")


def test_transforms_that_leave_images_their_sizes(tmp_path: Path) -> None:
    asked = own(tmp_path, side=None)
    paint(tmp_path / "data/mine/red/2.png", 800, 40)
    error = said_by(Brightest(), TF.to_tensor, **asked)
    assert "one shape for all images of a benchmark, got (3, 32, 32) and (3, 40, 40)" in error
    assert top1(robustness.evaluate(Brightest(), TF.to_tensor, **asked, batch_size=1)) == (3, 3)


def test_transforms_that_take_no_picture(tmp_path: Path) -> None:
    def transform(_: Any) -> Any:
        raise ValueError("never")

    error = said_by(Brightest(), transform, **own(tmp_path))
    assert "transform takes none of the fixed pictures (ValueError for a picture of" in error


@pytest.mark.parametrize(
    "device", ["gpu", "meta", "cuda:99", *([] if torch.cuda.is_available() else ["cuda"]), "mps"]
)
def test_devices_that_are_not_there(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f" here, got '{device}'."
    error = said_by(Brightest(), TF.to_tensor, **own(tmp_path), device=device)
    assert error.startswith("--device must be auto")
    assert error.endswith(words)
    ask = ["--model", "test_resnet", "--random-weights", "--suites", "digits", "--device", device]
    assert main(ask) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1


def test_paths_are_taken_as_texts(tmp_path: Path) -> None:
    asked = own(tmp_path)
    texts = {
        "data_root": str(asked["data_root"]),
        "benchmarks": str(asked["benchmarks"][0]),
        "cache": str(tmp_path / "cache"),
        "output": str(tmp_path / "out"),
        "folders": {"mine": str(tmp_path / "data/mine")},
    }
    assert top1(robustness.evaluate(Brightest(), TF.to_tensor, **texts)) == (3, 3)
    assert (tmp_path / "out/report.json").is_file()
    assert list((tmp_path / "cache").rglob("*.json"))
    assert Options(suites="digits", frost_dir="x").suites == ["digits"]  # type: ignore[arg-type]


class Extra(Brightest):
    """Holds what is no tensor in its state."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.extra = {"held": extra}

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


def quantized(scale: float) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = nn.Linear(3, 3)
        nn.init.constant_(layer.weight, scale)
        model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), layer)
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore")
def test_models_with_more_than_tensors_in_their_state(tmp_path: Path) -> None:
    asked = own(tmp_path)
    for one, same, other in (
        (Extra({"a": [1, torch.ones(2)]}), Extra({"a": [1, torch.ones(2)]}), Extra({"a": [2]})),
        (quantized(1.0), None, quantized(2.0)),
    ):
        assert top1(robustness.evaluate(one, TF.to_tensor, **asked))[1] == 3
        assert weights_digest(one) != weights_digest(other)
        if same is not None:
            assert weights_digest(one) == weights_digest(same)
    error = said_by(Extra(lambda: None), TF.to_tensor, **asked)
    assert "the state entry _extra_state (dict) cannot be hashed" in error


@pytest.mark.parametrize("verify", [False, True])
def test_a_broken_symlink_is_a_gap(verify: bool, tmp_path: Path) -> None:
    asked = own(tmp_path)
    file = tmp_path / "data/mine/red/1.png"
    file.unlink()
    file.symlink_to(tmp_path / "gone.png")
    report = robustness.evaluate(Brightest(), TF.to_tensor, **asked, verify=verify)
    assert report.results[0].all_gaps() == ["1 images unreadable: red/1.png"]


@pytest.mark.parametrize("place", ["red/b\udcff.png", "bl\udcffe/x.png"])
def test_names_that_are_not_utf8_are_a_gap(place: str, tmp_path: Path) -> None:
    asked = own(tmp_path)
    paint(tmp_path / "data/mine" / place, 800, 32)
    out = tmp_path / "out"
    report = robustness.evaluate(Brightest(), TF.to_tensor, **asked, output=out)
    (gap,) = report.results[0].all_gaps()
    assert "1 names that are not UTF-8" in gap
    assert r"\xff" in gap
    assert "not UTF-8" in (out / "report.md").read_text()


def test_a_folder_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    asked = own(tmp_path)
    odd = tmp_path / "d\udcff"
    (tmp_path / "data/mine").rename(odd)
    out = tmp_path / "out"
    robustness.evaluate(Brightest(), TF.to_tensor, **asked, folders={"mine": odd}, output=out)
    assert r"d\xff" in (out / "report.md").read_text()


@pytest.mark.parametrize("command", [main, compare.main, analyse.main, page.main, corrupt.main])
def test_an_interrupt_is_a_line_and_a_status_of_its_own(
    command: Callable[[list[str]], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for place in ("cli.Options.request", "compare.read_report", "analyse.Run", "page.Run"):
        monkeypatch.setattr(f"robustness.{place}", ends)
    monkeypatch.setattr(corrupt, "write_corrupted", ends)
    ask = {
        main: ["--model", "test_resnet", "--random-weights", "--suites", "digits"],
        corrupt.main: ["--src", str(tmp_path), "--dst", str(tmp_path / "dst")],
    }
    assert command(ask.get(command, ["x"])) == 130
    error = capsys.readouterr().err.strip()
    assert "interrupted: what is finished is kept" in error
    assert len(error.splitlines()) == 1


def hearing() -> None:
    """Hear Ctrl-C, as at a terminal: what a shell starts in the background is told to ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.landing
@pytest.mark.parametrize("workers", ["0", "1"])
def test_ctrl_c_ends_a_run_in_one_line(workers: str, tmp_path: Path) -> None:
    ask = ["--model", "test_resnet", "--random-weights", "--img-size", "32", "--suites", "digits"]
    where = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "robustness", *ask, *where, "--workers", workers]
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hearing,
    )
    while run.poll() is None and len(list((tmp_path / "cache").rglob("*.json"))) < 2:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all of its processes
    _, error = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in error
    assert "interrupted: what is finished is kept" in error.strip().splitlines()[-1]


@pytest.mark.landing
def test_ctrl_c_ends_corrupt_and_its_workers(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    from PIL import Image

    for number in range(64):
        file = tmp_path / f"src/a/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).save(file)
    where = ["--src", str(tmp_path / "src"), "--dst", str(tmp_path / "dst")]
    command = [sys.executable, "-m", "robustness.corrupt", *where, "--workers", "2"]
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hearing,
    )
    while run.poll() is None and len(list((tmp_path / "dst").rglob("*.JPEG"))) < 2:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    _, error = run.communicate(timeout=120)
    assert run.returncode == 130
    assert len(error.strip().splitlines()) == 1
    assert len(list((tmp_path / "dst").rglob("*.JPEG"))) < 64 * 95
