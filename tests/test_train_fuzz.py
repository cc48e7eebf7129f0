"""500 mutated configurations and command lines: a run, or one line and exit status 2."""

import contextlib
import io
import itertools
import string
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import train
from vit_ls import job
from vit_ls.config import TrainConfig
from vit_ls.config.rows import rows
from vit_ls.config.values import kind_of
from vit_ls.train import Best

NAMES = [one.name for one in fields(TrainConfig)]
SOUND: dict[str, Any] = {"img_size": 32, "epochs": 1, "lr": 1e-3, "batch_size": 2, "workers": 0}
WORDS = st.sampled_from(
    [
        *("", "auto", "cosine", "bicubic", "rand-m9", "rand-m9-mstd0.5", "augmix", "v0", "none"),
        *("test_vil_ls", "test_vit", "no_such_model", "backbone", "1e-3", "-1", "nan", "inf"),
        *("train", "0", "1", "3", "a=b", "digits", "torch/cifar10", "hfds/none", "/dev/null"),
        *("\0", "é", "lamb"),
    ]
)
TEXT = st.text(string.printable, max_size=8)
ANY = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, TEXT)
LISTS = st.lists(ANY, max_size=4)
ANYTHING = st.one_of(ANY, LISTS, st.dictionaries(TEXT, ANY, max_size=2))
OF_TYPE: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-1, 9),
    float: st.one_of(st.floats(0, 1), st.floats(-1, 20)),
    str: WORDS,
    dict: st.dictionaries(st.sampled_from(["momentum", "depth", "eps"]), st.integers(0, 3)),
}


class _Stub(nn.Module):
    """Stands for any model."""

    def __init__(self, num_classes: int | None = None, **_: Any) -> None:
        super().__init__()
        self.num_classes = num_classes or 1000
        self.head = nn.Linear(1, 1)
        self.pretrained_cfg = {"input_size": (3, 32, 32)}

    def get_classifier(self) -> nn.Module:
        return self.head

    def set_grad_checkpointing(self, enable: bool) -> None:
        self.checkpointing = enable


def _misspelt(draw: st.DrawFn, name: str) -> str:
    place, gap = draw(st.integers(0, len(name))), draw(st.integers(0, 2))
    return name[:place] + draw(st.sampled_from(["_", "x", "é", ":"])) + name[place + gap :]


@st.composite
def entries(draw: st.DrawFn) -> tuple[str, Any]:
    """A setting and a value, mostly of its type; at times misspelt, or with anything."""
    name = draw(st.sampled_from(NAMES))
    kind, item, _ = kind_of(TrainConfig, name)
    rule = rows(TrainConfig)[name].rule
    value = OF_TYPE.get(item or kind, WORDS)
    if rule.choices:
        value = st.sampled_from(rule.choices)
    if kind is list:
        value = st.lists(value, min_size=1, max_size=3)
    mutation = draw(st.integers(0, 9))
    if mutation == 0:
        name = _misspelt(draw, name)
    return name, draw(ANYTHING if mutation == 1 else value)


@st.composite
def files(draw: st.DrawFn) -> str:
    """The text of a configuration, at times not YAML."""
    text = yaml.safe_dump(SOUND | dict(draw(st.lists(entries(), max_size=5))), allow_unicode=True)
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(TEXT) + text[place:]
    return text


@st.composite
def flags(draw: st.DrawFn) -> list[str]:
    """Flags, at times with too few or too many values."""
    words = []
    for name, value in draw(st.lists(entries(), max_size=3)):
        words.append("--" + name.replace("_", "-"))
        values = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            values = [f"{key}={one}" for key, one in value.items()]
        if not isinstance(value, bool):
            words += map(str, values)
        if draw(st.integers(0, 19)) == 0:
            words.append(draw(WORDS))
    return words


@pytest.fixture(scope="module")
def stubbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Everything up to the model is real; building the model and the run after it are stubbed."""
    root = tmp_path_factory.mktemp("images")
    for split, label in itertools.product(("train", "validation"), "ab"):
        (root / split / label).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / split / label / "0.png")
    SOUND["data_dir"] = str(root)
    patch = pytest.MonkeyPatch()
    patch.setattr(train, "create_model", _Stub)
    patch.setattr(train, "Trainer", _Run)
    yield
    patch.undo()


class _Run:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def fit(self, _: Any) -> Best:
        return Best(50.0, 0, Path("best"))


@pytest.mark.landing
@pytest.mark.usefixtures("stubbed")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(text=files(), argv=flags())
def test_a_mutated_start_gives_a_run_or_one_line(text: str, argv: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(text, encoding="utf-8")
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                status = job.command_line(
                    "train.py", lambda: train.main(["--config", str(file), *argv])
                )
            except SystemExit as stop:
                status = int(stop.code or 0)
    if status == 0:
        said = output.getvalue()
        assert said.startswith(("best val_top1=", "usage:")) or "This is an estimate: " in said
    else:
        assert status == 2
        assert errors.getvalue().count("\n") == 1, errors.getvalue()
