"""300 mutated command lines and YAML files, run for real; and settings that must change a run."""

import functools
import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import runs
import yaml

from vit_ls.config import TrainConfig
from vit_ls.config.idle import idle
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
    "torchcompile": ["no_such"],
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
    rule = next(one.metadata["rule"] for one in fields(TrainConfig) if one.name == name)
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
    status = runs.finish(argv, log, env={"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"})
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
@pytest.mark.timeout(3600)
def test_mutated_starts_run_as_told_or_end_with_one_line(images: Path, tmp_path: Path) -> None:
    cases = [_case(number) for number in range(CASES)]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda n: _wrong(cases[n], images, tmp_path / str(n)), range(CASES))
        wrong = {n: what for n, what in enumerate(found) if what is not None}
    assert not wrong, "\n\n".join(f"{cases[n]}: {what}" for n, what in wrong.items())


# A value that must change what a run computes, and the settings beside which it acts.
ACTS = {
    "in_chans": ("1", ""),
    "crop_pct": ("0.5", ""),
    "mean": ("0.1 0.1 0.1", ""),
    "std": ("0.1 0.1 0.1", ""),
    "interpolation": ("nearest", ""),
    "model_kwargs": ("drop_rate=0.5", ""),
    "batch_size": ("4", ""),
    "num_classes": ("5", ""),
    "freeze": ("backbone", ""),
    "grad_accum_steps": ("2", ""),
    "head_init_scale": ("2", ""),
    "head_init_bias": ("1", ""),
    "opt": ("lamb", ""),
    "opt_eps": ("0.1", ""),
    "opt_betas": ("0.5 0.5", ""),
    "momentum": ("0.1", "--opt sgd"),
    "weight_decay": ("5", ""),
    "clip_mode": ("value", "--opt sgd --clip-grad 0.01"),
    "layer_decay": ("0.3", ""),
    "layer_decay_min_scale": ("0.9", "--layer-decay 0.3"),
    "opt_kwargs": ("amsgrad=True betas=(0.1,0.1)", ""),
    "sched": ("step", "--decay-epochs 1"),
    "sched_on_updates": ("", ""),
    "lr": ("1e-2", ""),
    "lr_cycle_limit": ("2", "--epochs 1"),
    "lr_cycle_mul": ("2", "--epochs 2 --lr-cycle-limit 2"),
    "lr_cycle_decay": ("0.1", "--epochs 1 --lr-cycle-limit 2"),
    "lr_k_decay": ("2", ""),
    "lr_decay_fn": ("cosine", "--sched wsd --decay-epochs 2 --epochs 3"),
    "lr_noise": ("0.0", ""),
    "lr_noise_pct": ("0.1", "--lr-noise 0.0"),
    "min_lr": ("5e-4", ""),
    "warmup_epochs": ("1", ""),
    "warmup_prefix": ("", "--warmup-epochs 1"),
    "cooldown_epochs": ("1", ""),
    "decay_milestones": ("1", "--sched multistep --decay-rate 0.5"),
    "decay_epochs": ("1", "--sched step"),
    "decay_rate": ("0.5", "--sched step --decay-epochs 1"),
    "no_aug": ("", ""),
    "train_crop_mode": ("rkrc", ""),
    "scale": ("0.9 1", ""),
    "ratio": ("1 1", ""),
    "hflip": ("0", ""),
    "vflip": ("1", ""),
    "color_jitter": ("0", ""),
    "color_jitter_prob": ("0.1", ""),
    "gaussian_blur_prob": ("1", ""),
    "aa": ("rand-m9", ""),
    "aug_repeats": ("2", ""),
    "aug_splits": ("2", ""),
    "jsd_loss": ("", "--aug-splits 2"),
    "split_bn": ("", "--model test_cvt_ls --resplit --reprob 1"),
    "bce_loss": ("", ""),
}


def _result(images: Path, root: Path, name: str, words: list[str]) -> tuple[int, str, str]:
    """Status, summary and log of a run."""
    start = [word for key, value in SOUND.items() for word in ("--" + key, str(value))]
    start = [word.replace("_", "-") if word.startswith("--") else word for word in start]
    argv = [str(images), *start, "--epochs", "2", "--output", str(root), "--experiment", name]
    log = root / f"{name}.log"
    status = runs.finish([*argv, *words], log)
    file = root / name / "summary.csv"
    return status, file.read_text() if file.exists() else "", log.read_text()


@pytest.fixture(scope="module")
def plainly(
    images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[int, str, str]]:
    """The run with nothing but some settings, made once."""
    root = tmp_path_factory.mktemp("plain")

    @functools.cache
    def run(beside: str) -> tuple[int, str, str]:
        return _result(images, root, f"plain-{abs(hash(beside))}", beside.split())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTS)
def test_a_setting_changes_what_a_run_computes(
    name: str, images: Path, tmp_path: Path, plainly: Callable[[str], tuple[int, str, str]]
) -> None:
    value, beside = ACTS[name]
    flag = "--" + name.replace("_", "-")
    told = [f"--no-{flag[2:]}"] if value == "NO" else [flag, *value.split()]
    plain = plainly(beside)
    changed = _result(images, tmp_path, "changed", [*beside.split(), *told])
    assert (plain[0], changed[0]) == (0, 0), plain[2] + changed[2]
    assert f"{flag} has no effect" not in changed[2]
    assert plain[1] != changed[1], f"{flag} {value} changed nothing"
