"""Settings as timm's scripts take them: values, files that they wrote, what is built of them."""

import inspect
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import runs
import torch
import yaml
from timm.data import create_transform
from timm.loss import create_classification_loss
from timm.optim import create_optimizer_v2, get_optimizer_info, list_optimizers

import train
from vit_ls.config import ConfigError, TrainConfig, dump, read
from vit_ls.config.foreign import ABSENT
from vit_ls.data.augment import augmentation
from vit_ls.data.digits import Digits
from vit_ls.job import set_precision
from vit_ls.run import read_checkpoint
from vit_ls.run.building import idle_of_optimizer

TIMM = Path(__file__).parent.parent / "data" / "timm_args.yaml"
TINY = [
    "--model",
    "test_vil_ls",
    "--img-size",
    "16",
    "--batch-size",
    "8",
    "--workers",
    "0",
    "--epochs",
    "1",
]
TINY += ["--opt", "adamw", "--lr", "1e-3", "--warmup-epochs", "0", "--device", "cpu"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with digits of three kinds."""
    root = tmp_path_factory.mktemp("images")
    for split, held_out, count in (("train", False, 32), ("validation", True, 12)):
        for index in range(count):
            image, label = Digits(held_out=held_out)[index]
            folder = root / split / str(label % 3)
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{index}.png")
    return root


def _run(images: Path, tmp_path: Path, *argv: str, name: str = "run") -> tuple[str, Path]:
    """The log and the folder of a run."""
    log = tmp_path / f"{name}.log"
    start = [str(images), "--output", str(tmp_path), "--experiment", name]
    status = runs.finish([*start, *argv], log)
    assert status == 0, log.read_text()
    return log.read_text(), tmp_path / name


def _weights(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = read_checkpoint(folder / "last.pth.tar")["state_dict"]
    return state


def _read(*argv: str) -> TrainConfig:
    return read(train.parser, TrainConfig, argv)[0]


@pytest.mark.landing
def test_a_file_that_timms_script_wrote_runs_with_one_warning(images: Path, tmp_path: Path) -> None:
    log, folder = _run(images, tmp_path, "--config", str(TIMM), *TINY)
    warnings = [line for line in log.splitlines() if "left out here" in line]
    assert len(warnings) == 1
    written, wanted = (yaml.safe_load(path.read_text()) for path in (folder / "args.yaml", TIMM))
    for name, value in wanted.items():
        if name in ABSENT:
            assert f" {name}" in warnings[0]
        elif name in written and value is not None and f"--{name.replace('_', '-')}" not in TINY:
            assert written[name] == value or name in ("output", "experiment", "wandb_tags"), name


def test_the_settings_of_timms_other_losses_have_the_defaults_of_its_factory() -> None:
    known = inspect.signature(create_classification_loss).parameters
    ours = {name for name in known if name.startswith(("asl_", "poly_", "twoway_", "db_"))}
    assert ours <= ABSENT.keys()
    assert {name: ABSENT[name].default for name in ours} == {
        name: known[name].default for name in ours
    }


@pytest.mark.parametrize(("name", "value"), [("tta", 4), ("naflex_loader", True), ("fuser", "te")])
def test_a_file_of_timms_that_needs_what_is_left_out_is_refused(
    images: Path, tmp_path: Path, name: str, value: object
) -> None:
    file = tmp_path / "args.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(TIMM.read_text()) | {name: value}))
    log = tmp_path / "log"
    assert runs.finish([str(images), "--config", str(file), *TINY], log) == 2
    assert re.search(rf"args.yaml:\d+: {name} is left out: .+\.\n\Z", log.read_text())
    assert log.read_text().count("\n") == 1


def test_values_of_arguments_are_those_of_python(tmp_path: Path) -> None:
    words = ["x=1e-6", "y=None", "z=(7,7)", "w=[1, 'a']", "t=text", "b=true", "n=-3"]
    kwargs = {"x": 1e-6, "y": None, "z": (7, 7), "w": [1, "a"], "t": "text", "b": True, "n": -3}
    config = _read("--model-kwargs", *words)
    assert config.model_kwargs == kwargs
    file = tmp_path / "c.yaml"
    file.write_text(dump(config))
    again = _read("--config", str(file))
    assert again == config
    assert type(again.model_kwargs["z"]) is tuple
    file.write_text("model_kwargs:\n  x: 1e-6\n  y: null\n  z: (7,7)\nlr: 1e-6\n")
    assert _read("--config", str(file)).model_kwargs == {"x": 1e-6, "y": None, "z": (7, 7)}


def test_values_that_no_file_can_hold_are_refused() -> None:
    for word in ("x=1j", "x=b'a'", "x={1, 2}"):
        with pytest.raises(ConfigError, match="--model-kwargs x must be made of numbers, texts"):
            _read("--model-kwargs", word)


def test_arguments_reach_the_model_in_their_types(images: Path, tmp_path: Path) -> None:
    argv = [*TINY, "--model", "test_vit", "--model-kwargs", "init_values=1e-6", "class_token=false"]
    argv += ["global_pool=avg"]
    _, folder = _run(images, tmp_path, *argv, "--lr", "1e-20")
    weights = _weights(folder)
    assert "cls_token" not in weights
    assert torch.equal(weights["blocks.0.ls1.gamma"], torch.full((64,), 1e-6))


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--aug-repeats", "3.0"], "aug_repeats", 3),
        (["--amp-impl", "native"], "amp", None),
        (["--native-amp"], "amp", True),
        (["--tf32"], "float32_matmul_precision", "high"),
        (["--no-tf32"], "float32_matmul_precision", "highest"),
        (["--no-ddp-bb"], "no_ddp_bb", True),
        (["--local_rank", "0", "--tta", "0"], "epochs", 300),
    ],
)
def test_spellings_of_timms(argv: list[str], name: str, value: object) -> None:
    assert getattr(_read(*argv), name) == value


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--learning-rate", "--lr"),
        ("--image-size", "--img-size"),
        ("--num-workers", "--workers"),
        ("--wd", "--weight-decay"),
    ],
)
def test_names_of_other_programs_are_understood(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        _read(given, "1")


def test_the_classifier_starts_as_it_is_told(images: Path, tmp_path: Path) -> None:
    still = [*TINY, "--lr", "1e-30", "--weight-decay", "0"]
    _, plain = _run(images, tmp_path, *still, name="plain")
    flags = ["--head-init-scale", "0.5", "--head-init-bias", "-2"]
    _, told = _run(images, tmp_path, *still, *flags, name="told")
    before, after = _weights(plain), _weights(told)
    changed = [name for name in after if not torch.allclose(before[name], after[name], atol=1e-20)]
    assert changed == ["head.fc.weight", "head.fc.bias"]
    assert torch.allclose(after["head.fc.weight"], before["head.fc.weight"] / 2)
    assert torch.equal(after["head.fc.bias"], torch.full((3,), -2.0))


def test_layers_with_a_small_factor_are_frozen(images: Path, tmp_path: Path) -> None:
    _, still = _run(images, tmp_path, *TINY, "--lr", "1e-30", "--weight-decay", "0", name="still")
    flags = ["--layer-decay", "0.5", "--layer-decay-no-opt-scale", "0.3"]
    log, run = _run(images, tmp_path, *TINY, *flags)
    assert "no effect" not in log
    start, end = _weights(still), _weights(run)
    assert torch.equal(start["stages.0.embed.proj.weight"], end["stages.0.embed.proj.weight"])
    assert not torch.equal(start["head.fc.weight"], end["head.fc.weight"])


def test_features_of_a_width_that_a_model_has_not_are_refused(images: Path, tmp_path: Path) -> None:
    _, teacher = _run(images, tmp_path, *TINY, name="teacher")
    argv = [*TINY, "--kd-model-name", "test_vil_ls", "--kd-distill-type", "feature"]
    argv += ["--kd-model-path", str(teacher / "last.pth.tar")]
    log = tmp_path / "log"
    start = [str(images), "--output", str(tmp_path / "o"), *argv]
    assert runs.finish([*start, "--kd-student-feature-dim", "7"], log) == 2
    found = re.search(r"--kd-student-feature-dim must be (\d+), the width of that", log.read_text())
    assert found is not None
    right = ["--kd-student-feature-dim", found[1], "--kd-teacher-feature-dim", found[1]]
    _run(images, tmp_path, *argv, *right)


def test_modules_of_a_device_are_imported_first(images: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    argv = [str(images), *TINY, "--output", str(tmp_path)]
    assert runs.finish([*argv, "--device-modules", "no_such_device"], log) == 2
    assert "--device-modules no_such_device cannot be imported: No module" in log.read_text()
    log, _ = _run(images, tmp_path, *TINY, "--device-modules", "json", "this", name="imported")
    assert "The Zen of Python" in log


@pytest.mark.parametrize(
    ("flags", "device", "wanted"),
    [
        ([], "cpu", ("highest", True, False)),
        ([], "cuda", ("high", True, True)),
        (["--no-tf32", "--no-cudnn-benchmark"], "cuda", ("highest", False, False)),
        (["--float32-matmul-precision", "medium"], "cuda", ("medium", True, True)),
        (["--tf32"], "cpu", ("high", True, False)),
    ],
)
def test_products_have_the_precision_of_the_device(
    flags: list[str], device: str, wanted: tuple[str, bool, bool]
) -> None:
    try:
        set_precision(_read(*flags), torch.device(device))
        cudnn = torch.backends.cudnn
        assert (torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark) == wanted
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = True, False


@pytest.mark.landing
@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("train", ["--epochs", "1"]),
        pytest.param(
            "validate",
            ["--model", "test_vil_ls", "--random-weights"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_computes_with_the_precision_that_was_asked_for(
    script: str, more: list[str], images: Path, tmp_path: Path
) -> None:
    argv = [str(images), *more, "--float32-matmul-precision", "medium", "--workers", "0"]
    if script == "train":
        argv = [*argv, *TINY, "--output", str(tmp_path)]
    code = (
        f"import torch, {script}; {script}.main({argv!r}); "
        "print('precision', torch.get_float32_matmul_precision())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("precision medium\n")


def test_settings_that_do_nothing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _read("--mixup-prob", "0.5", "--decay-rate", "0.5", "--clip-mode", "agc", "--mixup", "1")
    assert "--decay-rate has no effect: it needs --sched step or" in caplog.text
    assert "--clip-mode has no effect: it needs --clip-grad." in caplog.text
    assert "--mixup-prob" not in caplog.text


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--color-jitter", "0.2", "--aa", "rand-m9"], "--color-jitter has no effect: it needs no"),
        (["--color-jitter-prob", "0.2", "--aa", "original"], "--color-jitter-prob has no effect"),
        (["--color-jitter", "0.2", "--color-jitter-prob", "0"], "--color-jitter has no effect"),
        (["--color-jitter", "0", "--color-jitter-prob", "1"], "--color-jitter-prob has no effect"),
        (["--color-jitter", "0.2", "--aa", "3a"], ""),
        (["--color-jitter", "0.2", "--color-jitter-prob", "0.8"], ""),
        (["--color-jitter", "0"], ""),
        (["--aa", "rand-m9"], ""),
    ],
)
def test_a_colour_jitter_that_does_nothing_is_named(
    argv: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        _read(*argv)
    assert caplog.text.count("has no effect") == bool(told)
    assert told in caplog.text


@pytest.mark.parametrize("policy", ["rand-m9", "original", "v0", "augmix-m3", "3a"])
def test_a_policy_that_leaves_the_colour_jitter_out_is_the_one_that_is_named(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        config = _read("--aa", policy, "--color-jitter", "0.2")
    jitters = "ColorJitter" in str(create_transform(32, **augmentation(config)))
    assert ("--color-jitter has no effect" in caplog.text) == (not jitters)


def _made(name: str, **settings: Any) -> str:
    optimizer = create_optimizer_v2(torch.nn.Linear(4, 4), opt=name, lr=0.1, **settings)
    groups = [
        {key: group[key] for key in group if key != "params"} for group in optimizer.param_groups
    ]
    return repr((groups, optimizer.defaults))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*list_optimizers(), "lookahead_adamw", "lookahead_sgd"])
def test_a_setting_that_an_optimiser_does_not_take_is_named(name: str) -> None:
    """What changes nothing about the optimiser is named, and nothing else."""
    settings: dict[str, Any] = {"opt_eps": 0.0123, "momentum": 0.123, "opt_betas": [0.1, 0.2]}
    if get_optimizer_info(name.rpartition("_")[2]).num_betas == 3:
        settings["opt_betas"].append(0.3)
    try:
        plain = _made(name)
    except AssertionError:
        pytest.skip("needs a package or a device that is not here")
    idle = {
        f"--{key.replace('_', '-')}"
        for key, value in settings.items()
        if _made(name, **{key.removeprefix("opt_"): value}) == plain
    }
    config = replace(TrainConfig(opt=name), **settings)
    assert {flag for flag, _ in idle_of_optimizer(config)} == idle
    assert not list(idle_of_optimizer(TrainConfig(opt=name)))


def test_a_run_names_what_its_optimiser_does_not_take(images: Path, tmp_path: Path) -> None:
    flags = ["--momentum", "0.5", "--opt-betas", "0.8", "0.9"]
    log, _ = _run(images, tmp_path, *TINY, *flags)
    assert "--momentum has no effect: it needs an --opt that has a momentum, adamw has" in log
    assert "--opt-betas has no effect" not in log


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--seed", "4294967296"], "--seed must be at most 2147483647, got 4294967296."),
        (["--pretrained-path", ""], "--pretrained-path must not be empty."),
        (["--initial-checkpoint", ""], "--initial-checkpoint must not be empty."),
        (["--pretrained-path", "EMPTY"], "EMPTY is no file of weights."),
        (["--initial-checkpoint", "TEXT"], "TEXT is no file of weights."),
        (["--kd-model-name", "test_vit", "--kd-model-path", "TEXT"], "TEXT is no file of weights."),
        (["--lr", "1e300"], "--lr must be at most 3e+38, got 1e+300."),
        (["--workers", "1000000"], "--workers must be at most 1024, got 1000000."),
        (["--amp-impl", "apex"], "--amp-impl is left out: mixed precision is torch's own;"),
        (["--kd-loss-type", "mse"], "--kd-loss-type must be one of 'kl', got 'mse'."),
        (["--layer-decay", "0.5", "--opt", "nope"], "the optimiser cannot be made"),
    ],
)
def test_a_mistake_is_one_line(images: Path, tmp_path: Path, argv: list[str], message: str) -> None:
    (tmp_path / "EMPTY").touch()
    (tmp_path / "TEXT").write_text("no weights")
    argv = [str(tmp_path / word) if word in ("EMPTY", "TEXT") else word for word in argv]
    log = tmp_path / "log"
    assert runs.finish([str(images), *TINY, "--output", str(tmp_path / "o"), *argv], log) == 2
    assert message in log.read_text()
    assert log.read_text().count("\n") == 1


@pytest.mark.landing
@pytest.mark.filterwarnings("ignore")
def test_a_run_without_a_login_leaves_no_folder(images: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs the extra 'log'")
    argv = [str(images), *TINY, "--log-wandb", "--output", str(tmp_path / "runs")]
    argv += ["--experiment", "run"]
    nobody = {"HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc"), "WANDB_API_KEY": ""}
    log = tmp_path / "log"
    assert runs.finish(argv, log, env=nobody) == 2
    assert log.read_text().startswith("train.py: --log-wandb cannot log in (WANDB_MODE=offline")
    assert log.read_text().count("\n") == 1
    assert not (tmp_path / "runs").exists()
    assert runs.finish(argv, log, env=nobody | {"WANDB_MODE": "offline"}) == 0, log.read_text()


@pytest.mark.landing
@pytest.mark.filterwarnings("ignore")
def test_a_requeued_run_goes_on_in_its_run_of_weights_and_biases(
    images: Path, tmp_path: Path
) -> None:
    pytest.importorskip("wandb", reason="needs the extra 'log'")
    env = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    argv = [str(images), *TINY, "--epochs", "2", "--log-wandb", "--wandb-tags", "one", "two"]
    argv += ["--wandb-project", "shop-of-digits", "--output", str(tmp_path), "--experiment", "run"]
    for part in (["--stop-epoch", "1", "--wandb-resume-id", "anew7"], ["--resume", "auto"]):
        log = tmp_path / "log"
        assert runs.finish([*argv, *part], log, env=env) == 0, log.read_text()
    folders = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert all(b"shop-of-digits" in next(one.glob("*.wandb")).read_bytes() for one in folders)
    identity = (tmp_path / "run" / "wandb-run").read_text()
    assert len(folders) == 2
    assert identity == "anew7"
    assert {folder.name.rpartition("-")[2] for folder in folders} == {identity}
