"""A YAML file and flags become one configuration, or one line that says what is wrong."""

from pathlib import Path

import pytest

import train
import validate
from vit_ls.config import ConfigError, TrainConfig, ValidateConfig, dump, inherit, read


def _read(*argv: str) -> TrainConfig:
    return read(train.parser, TrainConfig, argv)[0]


def _from_file(tmp_path: Path, text: str, *argv: str) -> TrainConfig:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return _read("--config", str(file), *argv)


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    config = _from_file(tmp_path, "lr: 0.5\nepochs: 7\namp: true\n", "--lr", "0.1", "--no-amp")
    assert (config.lr, config.epochs, config.amp, config.momentum) == (0.1, 7, False, 0.9)


def test_numbers_may_be_text_as_yaml_reads_some_of_them(tmp_path: Path) -> None:
    config = _from_file(tmp_path, "lr: 3e-4\nepochs: '10'\nmean: ['0.5', 0, 1e-1]\n")
    assert (config.lr, config.epochs, config.mean) == (3e-4, 10, [0.5, 0.0, 0.1])


def test_a_command_line_of_timms_script_is_understood() -> None:
    config = _read(
        *("/data/imagenet", "--model", "vil_ls_medium", "-b", "128", "-j", "8", "--opt", "adamw"),
        *("--lr", "8e-4", "--weight-decay", "0.1", "--sched", "cosine", "--epochs", "300"),
        *("--warmup-epochs", "5", "--warmup-lr", "1e-6", "--min-lr", "1e-6", "--smoothing", "0.1"),
        *("--mixup", "0.8", "--cutmix", "1.0", "--aa", "rand-m9-mstd0.5-inc1", "--reprob", "0.25"),
        *("--remode", "pixel", "--drop-path", "0.3", "--amp", "--amp-dtype", "bfloat16"),
        *("--model-ema", "--model-ema-decay", "0.9999", "--channels-last", "--pin-mem"),
        *("--train-interpolation", "bicubic", "--color-jitter", "0.4", "--clip-grad", "1.0"),
        *("--opt-betas", "0.9", "0.95", "--mean", "0.5", "0.5", "0.5", "--log-interval", "10"),
        *("--use-multi-epochs-loader", "--local-rank", "0", "--worker-seeding", "all"),
    )
    assert config.data_dir == "/data/imagenet"
    assert (config.batch_size, config.workers, config.opt_betas) == (128, 8, [0.9, 0.95])


# Two that timm's documentation gives for its own weights, and one of short spellings.
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "/imagenet -b 64 --sched cosine --epochs 200 --lr 0.05 --amp --remode pixel "
            "--reprob 0.6 --aug-splits 3 --aa rand-m9-mstd0.5-inc1 --resplit --split-bn --jsd "
            "--dist-bn reduce",
            {"aug_splits": 3, "jsd_loss": True, "split_bn": True, "resplit": True, "amp": True},
        ),
        (
            "/imagenet --model efficientnet_b2 -b 128 --sched step --epochs 450 --decay-epochs 2.4 "
            "--decay-rate .97 --opt rmsproptf --opt-eps .001 -j 8 --warmup-lr 1e-6 "
            "--weight-decay 1e-5 --drop 0.3 --drop-path 0.2 --model-ema --model-ema-decay 0.9999 "
            "--aa rand-m9-mstd0.5 --remode pixel --reprob 0.2 --lr .016",
            {"decay_epochs": 2.4, "decay_rate": 0.97, "opt": "rmsproptf", "drop": 0.3},
        ),
        (
            "--data-dir /imagenet -m resnet50 -vb 32 --dr 0.5 --sched plateau --patience-epochs 3 "
            "--log-freq 5 --torchcompile --amp-impl native --fast-norm --save-images",
            {
                "model": "resnet50",
                "validation_batch_size": 32,
                "decay_rate": 0.5,
                "patience_epochs": 3,
                "log_interval": 5,
                "torchcompile": "inductor",
            },
        ),
    ],
)
def test_more_command_lines_of_timms_script(line: str, wanted: dict[str, object]) -> None:
    config = _read(*line.split())
    assert {name: getattr(config, name) for name in wanted} == wanted
    config.check()


def test_a_flag_of_timms_that_changes_nothing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    _read("--use-multi-epochs-loader")
    assert "--use-multi-epochs-loader has no effect" in caplog.text


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    config = _read(
        "--model-kwargs", "a=1", "b=text", "--mean", "0.5", "--no-aug", "--stop-epoch", "2"
    )
    assert config.model_kwargs == {"a": 1, "b": "text"}
    assert _from_file(tmp_path, dump(config)) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lr: 1\nwieght_decay: 0.1\n",
            "c.yaml:2: unknown key 'wieght_decay'; did you mean 'weight_",
        ),
        ("# a\n\nlr: fast\n", "c.yaml:3: lr must be a number, got 'fast'."),
        ("lr: true\n", "c.yaml:1: lr must be a number, got True."),
        ("lr: .nan\n", "c.yaml:1: lr must be finite, got nan."),
        ("lr: 0\n", "c.yaml:1: lr must be positive, got 0.0."),
        ("epochs: 1.5\n", "c.yaml:1: epochs must be a whole number, got 1.5."),
        ("amp: 1\n", "c.yaml:1: amp must be true or false, got 1."),
        ("input_size: 224\n", "c.yaml:1: input_size must be a list, got 224."),
        ("input_size: [3, 224]\n", "c.yaml:1: input_size must have 3 values, got [3, 224]."),
        ("decay_milestones: [1, x]\n", "decay_milestones must be a whole number, got 'x'."),
        ("sched: cosin\n", "got 'cosin'; did you mean 'cosine'?"),
        ("model_kwargs: [1]\n", "c.yaml:1: model_kwargs must be a mapping, got [1]."),
        ("smoothing: 1\n", "c.yaml:1: smoothing must be below 1, got 1.0."),
        ("epochs: 1\nepochs: 2\n", "c.yaml:2: epochs is set twice."),
        ("torchscript: true\n", "c.yaml:1: torchscript is left out: torch has deprecated it;"),
        ("- lr\n", "c.yaml:1: must hold 'key: value' lines."),
        ("lr: [1\n", "c.yaml:2: not valid YAML:"),
        ("model: !!python/object:os.system x\n", "not valid YAML: could not determine a const"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        _from_file(tmp_path, text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--wieght-decay", "1"], "unknown flag '--wieght-decay'; did you mean '--weight-decay'?"),
        (["--batch-size", "0"], "--batch-size must be positive, got 0."),
        (["--aug-splits", "1e308"], "--aug-splits must be at most 2147483647, got 1000000000"),
        (["--aug-splits", "65"], "--aug-splits must be at most 64, got 65."),
        (["--crop-pct", "8.9e-308"], "--crop-pct must be at least 0.05, got 8.9e-308."),
        (["--recount", "1001"], "--recount must be at most 1000, got 1001."),
        (["--epochs", "2147483648"], "--epochs must be at most 2147483647, got 2147483648."),
        (["--lr", "fast"], "--lr must be a number, got 'fast'."),
        (["--torchscript"], "--torchscript is left out: torch has deprecated it;"),
        (["--model-kwargs", "depth"], "--model-kwargs must be KEY=VALUE, got 'depth'."),
        (["--config", "nowhere.yaml"], "--config nowhere.yaml: No such file or directory."),
        (["a", "b"], "unexpected argument 'b'."),
        (["--epochs", "3", "--stop-epoch", "4"], "--stop-epoch must lie in 1 to --epochs, got 4"),
        (["--mixup", "1", "-b", "3"], "--batch-size must be even with mixup or cutmix, got 3."),
        (["--experiment", "../up"], "--experiment must be the plain name of a folder"),
        (["--scale", "1", "0.5"], "--scale and --ratio must be lower, upper"),
        (["--aug-splits", "1"], "--aug-splits must be 0 or at least 2, got 1."),
        (["--aug-splits", "2", "--mixup", "1"], "--aug-splits excludes mixup and cutmix, got 2."),
        (["--jsd-loss"], "--jsd-loss needs --aug-splits >= 2, got 0."),
        (["--split-bn"], "--split-bn needs --aug-splits >= 2 or --resplit"),
        (["--split-bn", "--resplit", "-b", "3"], "--batch-size must be even with --split-bn"),
        (["--split-bn", "--resplit", "--sync-bn"], "--split-bn cannot go with --sync-bn."),
    ],
)
def test_a_mistake_in_the_flags_is_named(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        _read(*argv).check()
    assert message in str(error.value)


def test_a_mistake_ends_the_program_with_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for argv in (["--lr"], ["--nonsense"], ["--resume", "auto"], ["--lr", "x"]):
        with pytest.raises(SystemExit) as stop:
            train._parse_args(argv)
        assert stop.value.code == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert ": error: " in line


def test_an_evaluation_takes_from_the_run_what_it_is_not_told() -> None:
    run = {"model": "a", "dataset": "d", "val_split": "held", "batch_size": 8, "img_size": 32}
    config, given = read(validate.parser, ValidateConfig, ["--batch-size", "4"])
    taken = inherit(config, given, run)
    assert (taken.model, taken.dataset, taken.split) == ("a", "d", "held")
    assert (taken.batch_size, taken.img_size) == (4, 32)
    larger, given = read(validate.parser, ValidateConfig, ["--img-size", "384"])
    assert inherit(larger, given, run | {"input_size": [3, 32, 32]}).input_size is None
