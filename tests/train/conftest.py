"""A run of two epochs, for the tests that continue it."""

from pathlib import Path

import pytest
from resumed import Runs, copy


@pytest.fixture(scope="module")
def _two_epochs(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("two_epochs")
    Runs(digit_folder, output).ends(0, "--epochs", "2")
    return output / "run"


@pytest.fixture
def train(digit_folder: Path, tmp_path: Path, _two_epochs: Path) -> Runs:
    """With a run of two epochs in the folder "run"."""
    copy(_two_epochs, tmp_path / "run")
    return Runs(digit_folder, tmp_path)
