"""A model comes back from `evaluate` as it went in, and so do the shared random numbers."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from colour_trees import paint
from torch import nn
from torchvision.transforms import functional as TF

import robustness
from robustness import api
from robustness.api import as_it_was
from vit_ls.config import ConfigError
from vit_ls.job import Ranks


class Trained(nn.Module):
    """A model in the middle of its training: a part of it is frozen, another is always training."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
        self.norm = nn.BatchNorm2d(3)
        self.train()
        self.frozen.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.norm(self.frozen(x)).mean(dim=(2, 3))
        return scores


def asked(folder: Path) -> dict[str, Any]:
    for number in range(2):
        paint(folder / f"data/mine/red/{number}.png", 800, 32)
    file = folder / "mine.yaml"
    text = "name: mine\nlayout: classes\nclasses: [red, green, blue]\nimages: 2\nimage_size: 32\n"
    file.write_text(text)
    return {"data_root": folder / "data", "benchmarks": [file]}


def modes(model: nn.Module) -> dict[str, bool]:
    return {name: module.training for name, module in model.named_modules()}


def fails_on_red(picture: Any) -> torch.Tensor:
    if picture.getpixel((0, 0)) == (204, 4, 0):
        raise RuntimeError("no red")
    return TF.to_tensor(picture)


@pytest.mark.parametrize("ends", ["well", "with an error", "before it begins"])
def test_modes_are_given_back_module_by_module(ends: str, tmp_path: Path) -> None:
    model = Trained()
    before = modes(model)
    assert set(before.values()) == {True, False}
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if ends == "well":
        robustness.evaluate(model, TF.to_tensor, **asked(tmp_path))
    elif ends == "with an error":
        with pytest.raises(ConfigError, match=r"transform cannot take red/0\.png: no red"):
            robustness.evaluate(model, fails_on_red, **asked(tmp_path))
    else:
        with pytest.raises(ConfigError, match="needs a model of 10 classes"):
            robustness.evaluate(model, TF.to_tensor, suites=["digits"])
    assert modes(model) == before
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_the_device_is_given_back_where_an_error_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wanders(Trained):
        """Says where it is sent, and stays."""

        def to(self, device: Any) -> "Wanders":
            went.append(str(device))
            return self

    went: list[str] = []
    ranks = Ranks(torch.device("meta"))
    monkeypatch.setattr(api, "joined", lambda *_: (ranks, False))
    with pytest.raises(RuntimeError):
        robustness.evaluate(Wanders(), TF.to_tensor, **asked(tmp_path))
    assert went == ["meta", "cpu"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_model_on_a_gpu_is_given_back_to_it(tmp_path: Path) -> None:
    model = Trained().cuda()
    parameters = list(model.parameters())
    robustness.evaluate(model, TF.to_tensor, **asked(tmp_path), device="cpu")
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"cuda"}
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))


def test_parts_on_several_devices_go_back_to_theirs() -> None:
    class Part(nn.Linear):
        def to(self, device: Any) -> "Part":
            went.append((self, str(device)))
            return self

    went: list[tuple[nn.Module, str]] = []
    whole = nn.Sequential(Part(1, 1), Part(1, 1, device="meta"))
    with as_it_was(whole):
        pass
    assert went == [(whole[0], "cpu"), (whole[1], "meta")]


def test_the_shared_random_numbers_are_as_they_were(tmp_path: Path) -> None:
    model = Trained()
    before = states()
    robustness.evaluate(model, TF.to_tensor, **asked(tmp_path))
    assert states() == before


def states() -> list[Any]:
    numpy = np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]  # noqa: NPY002
    return [random.getstate(), numpy, torch.get_rng_state().tolist()]
