"""300 mutated command lines and YAML files, run for real."""

import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import runs
import yaml

from vit_ls.config import TrainConfig
from vit_ls.config.rows import idle, rows
from vit_ls.config.values import kind_of
from vit_ls.data.digits import Digits

CASES, SEED = 300, 20
SOUND: dict[str, Any] = {
    "model": "test_vil_ls", "img_size": 16, "epochs": 1, "lr": 1e-3, "batch_size": 8, "workers": 0,
    "opt": "adamw", "warmup_epochs": 0, "device": "cpu",
}  # fmt: skip
# Values where a random one would wait for a network, compile for minutes or train for hours.
BOUNDED: dict[str, list[Any]] = {
    "epochs": [1, 2, 0, -1, "1e0"],
    "warmup_epochs": [0, 1, 2],
    "cooldown_epochs": [0, 1],
    "lr_cycle_limit": [1, 2],
    "lr_cycle_mul": [0.5, 1.0],
    "epoch_repeats": [0, 0.0],
    "workers": [0, 1, -1, 10**6],
    "dist_timeout": [60, 0],
    "opt": ["sgd", "adamw", "lamb", "lion", "nadamw", "adafactor", "muon", "adan", "none", "adawm"],
    "torchcompile": ["no_such", "eager"],
    "torchcompile_mode": ["default", "no_such"],
    "model": ["test_vil_ls", "test_cvt_ls", "test_vit", "test_resnet", "test_vit2", "tst_vit"],
    "kd_model_name": ["test_vil_ls", "no_such"],
    "dataset": ["digits", "digts", "", "torch/none"],
    "log_wandb": [False],
    "log_tensorboard": [False],
    "output": [],  # the test's own
    "device": ["cpu", "cuda:9", "gpu"],
    "img_size": [8, 16, 24, 32, 0],
    "input_size": [[3, 16, 16], [1, 16, 16], [3, 8, 16]],
    "batch_size": [2, 3, 8, 16, 64, 0],
    "num_classes": [3, 10, 2, 1000],
    "profile": [0, 1],
    "estimate": [],  # which trains nothing
    "gp": ["avg", "max", "no_such"],
    "aa": ["rand-m9-mstd0.5", "v0", "original", "augmix-m3-w2", "nonsense", "rand-m9-q"],
    "model_kwargs": [{"drop_rate": 0.1}, {"no_such": 1}, {}],
    "opt_kwargs": [{"foreach": False}, {"no_such": 1}],
    "device_modules": [["json"], ["no_such"]],
    "freeze": ["backbone", "head"],
    "resume": ["auto", "/dev/null", "no_such.pth"],
    "pretrained_path": ["/dev/null", "no_such.pth"],
    "initial_checkpoint": ["/dev/null", "no_such.pth"],
    "class_map": ["/dev/null", "no_such.txt"],
    "experiment": ["one", "..", "a/b", "x" * 300],
    "data_dir": ["/dev/null", "no_such"],
}
ODD = [None, True, -1, 0.5, 1e308, math.nan, "", "x", "1e-3", [], [1, 2, 3, 4], {"a": 1}]
NAMES = [one.name for one in fields(TrainConfig)]


class Case(NamedTuple):
    """One start: settings of its file, and flags over them."""

    file: dict[str, Any]
    flags: list[tuple[str, Any]]

    def argv(self) -> list[str]:
        """The flags as words."""
        words = []
        for name, value in self.flags:
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                off = f"--{flag[5:]}" if name.startswith("no_") else f"--no-{flag[2:]}"
                words.append(flag if value else off)
            elif isinstance(value, dict):
                words += [flag, *(f"{key}={one!r}" for key, one in value.items())]
            else:
                words += [flag, *map(str, value if isinstance(value, list) else [value])]
        return words


def _value(draw: random.Random, name: str) -> Any:
    if name in BOUNDED:
        return draw.choice(BOUNDED[name] or [None])
    if draw.random() < 0.08:
        return draw.choice(ODD)
    kind, item, _ = kind_of(TrainConfig, name)
    rule = rows(TrainConfig)[name].rule
    one: Any = draw.choice(["a", "train", "validation", "1"])
    if rule.choices:
        one = draw.choice(rule.choices)
    elif bool in (kind, item):
        one = draw.random() < 0.5
    elif int in (kind, item):
        one = draw.randint(-1, 4)
    elif float in (kind, item):
        one = draw.choice([0.0, 0.1, 0.5, 0.9, 1.0, 2.0, -0.5])
    if kind is list:
        length = draw.choice(rule.lengths or (1, 2))
        return [one] * length if not isinstance(one, float) else sorted([0.4, 0.7, 0.9][:length])
    return {"a": 1} if kind is dict else one


def _case(number: int) -> Case:
    draw = random.Random(SEED * 10_000 + number)
    picked = [name for name in draw.sample(NAMES, draw.randint(1, 4)) if name != "output"]
    pairs = [(name, _value(draw, name)) for name in picked]
    if draw.random() < 0.08:
        name, value = draw.choice([*SOUND.items()])
        place = draw.randint(0, len(name))
        pairs.append((name[:place] + "x" + name[place:], value))
    split = draw.randint(0, len(pairs))
    # A flag cannot say None or nothing.
    flags = [(name, value) for name, value in pairs[split:] if value not in (None, [], {})]
    return Case(SOUND | dict(pairs[:split]), flags)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with digits of three kinds."""
    root = tmp_path_factory.mktemp("images")
    for split, held_out, count in (
        ("train", False, 32),
        ("validation", True, 12),
        ("more", True, 24),
    ):
        for index in range(count):
            image, label = Digits(held_out=held_out)[index]
            folder = root / split / str(label % 3)
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{index}.png")
    return root


def _wrong(case: Case, images: Path, root: Path) -> str | None:
    """What is wrong with how a case ended, or None."""
    root.mkdir()
    settings = {"data_dir": str(images)} | case.file
    (root / "config.yaml").write_text(yaml.safe_dump(settings))
    argv = ["--config", str(root / "config.yaml"), *case.argv(), "--output", str(root / "runs")]
    log = root / "log"
    env = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}
    status = runs.finish(argv, log, seconds=600, env=env)
    text = log.read_text()
    lines = text.splitlines()
    if "Traceback" in text:
        return f"a traceback:\n{text[-1500:]}"
    if status:
        reported = status in (1, 2) and lines and lines[-1].startswith("train.py: ")
        return None if reported else f"status {status} without a line:\n{text[-500:]}"
    found = list((root / "runs").glob("*/args.yaml"))
    if len(found) != 1:
        return f"status 0 and {len(found)} runs:\n{text[-500:]}"
    written = yaml.safe_load(found[0].read_text())
    for name, value in (settings | dict(case.flags)).items():
        if not _same(written.get(name), value):
            return f"{name} was given as {value!r} and ran as {written.get(name)!r}"
    for name, _ in idle(TrainConfig(**written)):
        if f"--{name.replace('_', '-')} has no effect" not in text:
            return f"{name} did nothing, without a word"
    return None


def _same(written: Any, given: Any) -> bool:
    """Whether a setting ran as it was given, where a number may be given as text."""
    if isinstance(given, str) and isinstance(written, int | float):
        return float(given) == written
    if isinstance(given, list) and isinstance(written, list):
        return len(given) == len(written) and all(map(_same, written, given))
    return bool(written == given) or (given == [] and written is None)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_mutated_starts_run_as_told_or_end_with_one_line(images: Path, tmp_path: Path) -> None:
    cases = [_case(number) for number in range(CASES)]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda n: _wrong(cases[n], images, tmp_path / str(n)), range(CASES))
        wrong = {n: what for n, what in enumerate(found) if what is not None}
    assert not wrong, "\n\n".join(f"{cases[n]}: {what}" for n, what in wrong.items())
