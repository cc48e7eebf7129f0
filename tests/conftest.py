"""What every test starts from: one thread, a fixed seed, hypothesis without deadlines."""

import pytest
import torch
from hypothesis import settings

import vit_ls  # noqa: F401  registers the models

torch.set_num_threads(1)
settings.register_profile("vit_ls", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("vit_ls")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
