"""Random numbers in a transform or a model are found, also where they change nothing this time."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from colour_trees import CONFIG, ReadsColour
from PIL import Image
from torch import nn
from torchvision.transforms import functional as TF

from robustness.rules.protocols import own_protocol, protocol_for
from robustness.running.identity import check_steady
from robustness.running.subject import make_subject
from vit_ls.config import ConfigError

SHARED: list[Callable[[], float]] = [
    random.random,
    lambda: float(np.random.rand()),  # noqa: NPY002 - what transforms in the wild do
    lambda: float(torch.rand(())),
]


@pytest.mark.parametrize("draw", SHARED)
def test_a_transform_that_draws_is_refused_however_rarely_it_shows(
    draw: Callable[[], float],
) -> None:
    def transform(picture: Image.Image) -> torch.Tensor:
        found = TF.to_tensor(picture)
        return found.flip(2) if draw() < 1e-9 else found

    with pytest.raises(ConfigError, match="the same for the same image, and draws random numbers"):
        own_protocol("model", transform, 32)


@pytest.mark.parametrize("draw", SHARED)
def test_a_model_that_draws_is_refused_however_rarely_it_shows(draw: Callable[[], float]) -> None:
    class Draws(ReadsColour):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return found.flip(1) if draw() < 1e-9 else found

    protocol = lambda name, side: protocol_for(name, CONFIG, side)  # noqa: E731
    with pytest.raises(ConfigError, match="to the same image in eval mode, and draws random"):
        make_subject(Draws(), protocol, name="m")


def test_dropout_that_is_left_on_is_refused() -> None:
    class Dropping(ReadsColour):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(super().forward(x), 0.1, training=True)

    protocol = lambda name, side: protocol_for(name, CONFIG, side)  # noqa: E731
    with pytest.raises(ConfigError, match="draws random numbers"):
        make_subject(Dropping(), protocol, name="m")


def test_a_generator_of_ones_own_is_found_by_what_it_changes() -> None:
    own = random.Random(3)

    def transform(picture: Image.Image) -> torch.Tensor:
        found = TF.to_tensor(picture)
        return found.flip(2) if own.random() < 0.5 else found

    with pytest.raises(ConfigError, match="the same for the same image, and gives another"):
        own_protocol("model", transform, 32)

    class Draws(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(dim=(2, 3)) + (own.random() < 0.5)

    with pytest.raises(ConfigError, match="in eval mode, and gives another"):
        check_steady(Draws(), [torch.zeros(3, 4, 4), torch.ones(3, 4, 4)], "m")


def test_what_draws_nothing_is_taken_and_the_shared_generators_stay_where_they_were() -> None:
    states: list[Any] = []
    for _ in range(2):
        states.append((random.getstate(), torch.get_rng_state().tolist()))
        assert own_protocol("model", TF.to_tensor, 32).identity is not None
    assert states[0] == states[1]
