"""An optimiser goes on as if it had never stopped, under settings that may have changed."""

import io
import itertools
import logging
import warnings
from typing import Any

import pytest
import torch
from timm.optim import create_optimizer_v2, list_optimizers
from torch import nn
from torch.nn.functional import cross_entropy

from vit_ls.run.optim_state import restore, whole_state

# Left out: what needs a GPU, and kron, which compiles for minutes on a CPU.
_NAMES = [name for name in list_optimizers() if not name.startswith(("bnb", "fused", "kron"))]


def _net() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 5)
    return nn.Sequential(*layers)


def _made(net: nn.Module, name: str, **settings: Any) -> torch.optim.Optimizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer: torch.optim.Optimizer = create_optimizer_v2(
            net, opt=name, **{"lr": 1e-2, "weight_decay": 0.01, **settings}
        )
    return optimizer


def _steps(net: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        torch.manual_seed(number)
        images, labels = torch.randn(8, 3, 4, 4), torch.randint(5, (8,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = cross_entropy(net(images), labels)
            loss.backward(create_graph=bool(getattr(optimizer, "is_second_order", False)))
            optimizer.step()
        optimizer.zero_grad()


def _stored(net: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
    file = io.BytesIO()
    torch.save((net.state_dict(), whole_state(optimizer)), file)
    file.seek(0)
    stored: tuple[Any, Any] = torch.load(file, weights_only=True)
    return stored


def _goes_on_exactly(name: str, **settings: Any) -> bool:
    net = _net()
    optimizer = _made(net, name, **settings)
    _steps(net, optimizer, range(7))
    weights, state = _stored(net, optimizer)
    _steps(net, optimizer, range(7, 12))
    again = _net()
    other = _made(again, name, **settings)
    again.load_state_dict(weights)
    restore(other, state)
    _steps(again, other, range(7, 12))
    pairs = zip(net.state_dict().values(), again.state_dict().values(), strict=True)
    return all(torch.equal(one, two) for one, two in pairs)


@pytest.mark.slow
def test_every_optimiser_of_timm_goes_on_bit_identical() -> None:
    assert len(_NAMES) > 70
    assert [name for name in _NAMES if not _goes_on_exactly(name)] == []


@pytest.mark.parametrize("name", ["sgd", "adamw", "lamb", "lookahead_adamw", "adahessian"])
def test_an_optimiser_goes_on_bit_identical(name: str) -> None:
    settings = {"update_each": 3} if name == "adahessian" else {}
    assert _goes_on_exactly(name, **settings)


def test_an_optimiser_that_does_not_go_on_exactly_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        _goes_on_exactly("lookahead_adahessian")
    assert "it does not resume exactly" in caplog.text


def test_what_settings_change_is_as_they_say_and_the_rest_as_it_was() -> None:
    net = _net()
    before = _made(net, "lamb", betas=(0.9, 0.99))  # it counts its steps in its groups
    _steps(net, before, range(3))
    _, state = _stored(net, before)
    now = _made(net, "lamb", betas=(0.8, 0.99), lr=1e-3)
    restore(now, state, _made(net, "lamb", betas=(0.9, 0.99)))
    assert [(one["betas"], one["lr"], one["step"]) for one in now.param_groups] == [
        ((0.8, 0.99), 1e-3, 3)
    ] * 2


def test_a_state_follows_its_parameters_into_other_groups() -> None:
    net = _net()
    before = _made(net, "adamw", weight_decay=0.0)
    _steps(net, before, range(3))
    _, state = _stored(net, before)
    now = _made(net, "adamw", weight_decay=0.5)
    assert (len(before.param_groups), len(now.param_groups)) == (1, 2)
    restore(now, state, _made(net, "adamw", weight_decay=0.0))
    assert sorted(group["weight_decay"] for group in now.param_groups) == [0.0, 0.5]
    parameters = list(itertools.chain(*(group["params"] for group in now.param_groups)))
    assert len(parameters) == 6
    for parameter in parameters:
        assert torch.equal(now.state[parameter]["exp_avg"], before.state[parameter]["exp_avg"])
