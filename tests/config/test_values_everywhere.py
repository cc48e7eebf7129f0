"""KEY=VALUE is read alike by every program, so that one command line means one model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import papers.sequence.cli
import publish
import robustness.cli
import train
import validate
import vit_ls.visualize.__main__ as visualize
from vit_ls import export
from vit_ls.config import TrainConfig, asdict, mapping
from vit_ls.errors import ReportedError

VALUES = {
    "false": False,
    "False": False,
    "true": True,
    "None": None,
    "none": "none",  # pos_embed=none is a choice of timm's
    "3": 3,
    "3.0": 3.0,
    "1e-3": 1e-3,
    "[1, 2]": [1, 2],
    "(1, 2)": (1, 2),
    "avg": "avg",
    "a=b": "a=b",
    "": "",
}


class SeenError(ReportedError):
    """The model was asked for, and need not be made."""


def _of_train(words: list[str], _: pytest.MonkeyPatch) -> Any:
    return train._parse_args(["--dataset", "digits", "--model-kwargs", *words])[0].model_kwargs


def _of_validate(words: list[str], _: pytest.MonkeyPatch) -> Any:
    return validate._parse_args(["--model-kwargs", *words]).model_kwargs


def _of_robustness(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    taken: dict[str, Any] = {}
    monkeypatch.setattr(robustness.cli, "build_subject", lambda _, **kwargs: taken.update(kwargs))
    args = robustness.cli._parser().parse_args(["--model", "x", "--model-kwargs", *words])
    robustness.cli._subject(args, [])
    return {key: value for key, value in taken.items() if key.startswith("key")}


def _of_export(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    argv = ["--model", "test_vil_ls", "--out", "x.pt2", "--model-kwargs", *words]
    return _made(export, lambda: export._model(export._parse_args(argv)), monkeypatch)


def _of_visualize(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    argv = ["--model", "test_vil_ls", "--model-kwargs", *words]
    return _made(visualize, lambda: visualize._model(visualize._parse_args(argv)), monkeypatch)


def _of_sequence(words: list[str], _: pytest.MonkeyPatch) -> Any:
    return papers.sequence.cli._parse(["--opt-kwargs", *words]).opt_kwargs


def _made(module: Any, make: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Any:
    taken: dict[str, Any] = {}

    def factory(_: str, **kwargs: Any) -> Any:
        taken.update(kwargs)
        raise SeenError

    monkeypatch.setattr(module, "create_model", factory)
    with pytest.raises(SeenError):
        make()
    return taken


PROGRAMS = {
    "train": _of_train,
    "validate": _of_validate,
    "robustness": _of_robustness,
    "export": _of_export,
    "visualize": _of_visualize,
    "sequence": _of_sequence,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_value_is_the_same_in_every_program(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"key_{number}={text}" for number, text in enumerate(VALUES)]
    found = PROGRAMS[program](words, monkeypatch)
    wanted = {f"key_{number}": value for number, value in enumerate(VALUES.values())}
    assert found == wanted
    assert [type(value) for value in found.values()] == [type(v) for v in wanted.values()]


@pytest.mark.parametrize("program", ["robustness", "export", "visualize"])
@pytest.mark.parametrize("words", [["key"], ["key=1", "key=2"]])
def test_a_word_that_is_no_pair_or_comes_twice_is_refused(
    program: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"^--model-kwargs must (be KEY=VALUE|have each key once)"):
        PROGRAMS[program](words, monkeypatch)


def test_robustness_builds_the_model_that_is_asked_for() -> None:
    argv = ["--model", "test_vil_ls", "--random-weights", "--model-kwargs", "dual_ln=false"]
    subject = robustness.cli._subject(robustness.cli._parser().parse_args(argv), [])
    assert subject.arguments["dual_ln"] == "False"
    assert not [name for name in subject.model.state_dict() if ".norm_kv." in name]


def test_a_published_folder_has_the_values_of_the_run(tmp_path: Path) -> None:
    import torch
    from timm import create_model

    words = ["dual_ln=false", "window=4"]
    model = create_model("test_vil_ls", num_classes=10, **mapping(words, "--model-kwargs"))
    settings = asdict(TrainConfig()) | {
        "model": "test_vil_ls",
        "num_classes": 10,
        "model_kwargs": _of_train(words, pytest.MonkeyPatch()),
    }
    content = {"state_dict": model.state_dict(), "epoch": 0, "args": settings}
    torch.save(content, tmp_path / "last.pth.tar")
    argv = ["--checkpoint", str(tmp_path / "last.pth.tar"), "--name", "x"]
    publish.main([*argv, "--out", str(tmp_path / "out")])
    written = json.loads((tmp_path / "out" / "config.json").read_text())["model_args"]
    assert (written["dual_ln"], written["window"]) == (False, 4)
