"""A run of two epochs, for the tests that continue it; the store of an agent of torchrun's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from resumed import Runs, copy
from torch.distributed import TCPStore


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


@pytest.fixture
def agent() -> Iterator[dict[str, str]]:
    """The store that an agent of torchrun's keeps for all starts of a job, as they are told."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    del store
