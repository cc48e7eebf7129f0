"""A run whose average is far behind its weights, and a file in which the average was better."""

from pathlib import Path

import pytest
import runs
import torch

SIZE = ["--model", "test_vil_ls", "--img-size", "32", "--workers", "0", "-b", "16"]
RECIPE = ["--opt", "adamw", "--lr", "3e-3", "--warmup-epochs", "0", "--no-aug", "--epochs", "2"]
AVERAGE = ["--model-ema", "--model-ema-decay", "0.9999", "--no-model-ema-warmup"]


@pytest.fixture(scope="session")
def raw_best(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best checkpoint of a run with an average that has learnt nothing."""
    root = tmp_path_factory.mktemp("one_reading")
    argv = [str(digit_folder), *SIZE, *RECIPE, *AVERAGE, "--output", str(root)]
    log = root / "log"
    assert runs.finish([*argv, "--experiment", "run"], log) == 0, log.read_text()
    return root / "run" / "model_best.pth.tar"


@pytest.fixture(scope="session")
def ema_best(raw_best: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same file, in which the run says that the average scored better."""
    content = torch.load(raw_best, weights_only=True)
    content["summary"][-1]["eval_ema_top1"] = 100.0
    path = tmp_path_factory.mktemp("ema_best") / "model_best.pth.tar"
    torch.save(content, path)
    return path
