"""Files that trainers wrap in their own ways load exactly; what is no weight is refused by name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.models.wrappers import cleaned
from vit_ls.run import load_weights, read_file
from vit_ls.weights import main

State = dict[str, Tensor]


def _under(prefix: str) -> Callable[[State], dict[str, Any]]:
    return lambda state: {prefix + name: value for name, value in state.items()}


def _zeros(state: State) -> State:
    return {name: torch.zeros_like(value) for name, value in state.items()}


WRAPPED: dict[str, Callable[[State], dict[str, Any]]] = {
    "plain": lambda s: s,
    "compiled": _under("_orig_mod."),
    "parallel": _under("module."),
    "parallel_twice": _under("module.module."),
    "compiled_parallel": _under("module._orig_mod."),
    "lightning": lambda s: {"state_dict": _under("model.")(s), "epoch": 3, "loops": {"x": 1}},
    "backbone": lambda s: {"state_dict": _under("model.backbone.")(s)},
    "net": lambda s: {"net": s, "acc": 1.0},
    "nested": lambda s: {"state_dict": {"state_dict": _under("module.")(s)}},
    "model_in_state_dict": lambda s: {"state_dict": {"model": s}},
    "average_alone": lambda s: {"model_ema": s},
    "average_beside": lambda s: {"model": s, "model_ema": _zeros(s), "optimizer": {"state": {}}},
    "average_of_torch": lambda s: {
        "model_ema": {"n_averaged": torch.tensor(9), **_under("module.")(s)}
    },
    "configured": lambda s: {"model": {"name": "x"}, "state_dict": s},
}


def _model() -> Any:
    return timm.create_model("test_cvt", num_classes=7)


@pytest.fixture
def state() -> State:
    torch.manual_seed(3)
    found: State = _model().state_dict()
    return {name: value + value.new_ones(()) for name, value in found.items()}


@pytest.mark.parametrize("kind", WRAPPED)
def test_what_trainers_wrap_loads_exactly(
    kind: str,
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "file.pth"
    torch.save(WRAPPED[kind](state), path)
    model = _model()
    load_weights(model, path)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    monkeypatch.setattr(timm, "list_models", lambda: ["test_cvt"])
    main([str(path)])
    assert f"loads into test_cvt: {len(state)} tensors taken over\n" in capsys.readouterr().out


def test_kinds_of_files_are_told_by_what_is_in_them(state: State, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state}, tmp_path / "new.bin")
    save_file(state, tmp_path / "flat.safetensors")
    save_file(state, tmp_path / "named_otherwise.pth")
    for name in ("old.pth", "new.bin", "flat.safetensors", "named_otherwise.pth"):
        model = _model()
        load_weights(model, tmp_path / name)
        assert torch.equal(model.state_dict()["head.fc.weight"], state["head.fc.weight"]), name


def test_numpy_s_archives_are_read_by_the_model_as_timm_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, x=np.zeros(3))
    seen = []
    model = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"file.npz cannot be loaded: Linear reads no NumPy"):
        load_weights(model, path)
    model.load_pretrained = seen.append  # type: ignore[assignment]
    assert load_weights(model, path) == "raw"
    assert seen == [str(path)]


def _with(name: str, value: Any) -> Callable[[State], dict[str, Any]]:
    return lambda state: state | {name: value}


BROKEN: dict[str, tuple[Callable[[State], Any], str]] = {
    "a list": (_with("extra", [1, 2]), "'extra' must be a tensor, got a list"),
    "a list for all": (lambda s: {"state_dict": list(s.values())}, "must hold named tensors"),
    "complex": (
        lambda s: s | {"head.fc.weight": s["head.fc.weight"].to(torch.complex64)},
        "'head.fc.weight' must be real, got torch.complex64",
    ),
    "nan": (
        lambda s: s | {"head.fc.bias": s["head.fc.bias"] * float("nan")},
        "weights must be finite, got NaN or infinity in 1 of 153 tensors: head.fc.bias",
    ),
    "infinity": (
        lambda s: {n: v / 0 if v.is_floating_point() else v for n, v in s.items()},
        "weights must be finite, got NaN or infinity in 141 of 153 tensors: stages.0.",
    ),
    "another model": (
        lambda _: timm.create_model("test_resnet").state_dict(),
        "must fit test_cvt, got one with",
    ),
    "nothing": (lambda _: {}, "must hold named tensors, got none"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_weight_is_refused_in_one_line(kind: str, state: State, tmp_path: Path) -> None:
    make, message = BROKEN[kind]
    path, model = tmp_path / "file.pth", _model()
    torch.save(make(state), path)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=re.escape(message)) as raised:
        load_weights(model, path)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("flag", ["--pretrained-path", "--initial-checkpoint", "--kd-model-path"])
@pytest.mark.parametrize("kind", ["a list", "nan", "another model"])
def test_a_run_does_not_start_from_what_is_no_weight(
    kind: str, flag: str, state: State, tmp_path: Path
) -> None:
    path, log = tmp_path / "file.pth", tmp_path / "log"
    torch.save(BROKEN[kind][0](state), path)
    argv = ["--dataset", "digits", "--model", "test_vit", "--img-size", "32", "--workers", "0"]
    argv += [flag, str(path), "--output", str(tmp_path / "runs")]
    argv += ["--kd-model-name", "test_vit"] if flag == "--kd-model-path" else []
    assert runs.finish(argv, log) == 2, log.read_text()
    last = log.read_text().splitlines()[-1]
    assert last.startswith(f"train.py: {flag}: {path} ")
    assert "Traceback" not in log.read_text()
    assert not (tmp_path / "runs").exists()


def test_an_infinity_that_the_model_itself_has_is_no_damage(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))

    torch.save(Masked().state_dict(), tmp_path / "file.pth")
    assert load_weights(Masked(), tmp_path / "file.pth") == "raw"


def test_a_part_of_the_model_that_is_called_like_a_prefix_is_none(tmp_path: Path) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(2, 2)

    theirs, ours = Wrapped(), Wrapped()
    torch.save({"state_dict": _under("module.")(theirs.state_dict())}, tmp_path / "file.pth")
    load_weights(ours, tmp_path / "file.pth")
    assert torch.equal(ours.model.weight, theirs.model.weight)


def test_two_tensors_of_one_name_are_refused() -> None:
    one = torch.zeros(1)
    with pytest.raises(ValueError, match="must have each tensor once, got weight twice"):
        cleaned({"module.weight": one, "model.weight": one})


def test_names_of_another_kind_than_a_file_of_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("weights")
    with pytest.raises(ConfigError, match=r"^--checkpoint .*text.pth is no file of weights"):
        load_weights(_model(), tmp_path / "text.pth")
    with pytest.raises(CheckpointError, match="it is no file of torch or safetensors"):
        read_file(tmp_path / "text.pth")
