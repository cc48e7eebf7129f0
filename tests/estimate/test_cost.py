"""What `train.py --estimate` says, and that it says what a run would do."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from timm import create_model

import train
from vit_ls import job
from vit_ls.config import ConfigError, TrainConfig, read
from vit_ls.count import count_flops, count_params
from vit_ls.estimate import cost, estimated, headline, report
from vit_ls.estimate.memory import Memory
from vit_ls.train.recipe import learning_rate, make_schedule
from vit_ls.train.utilisation import PEAKS

MEMORY = Memory(state=10**9, activations=2 * 10**9, per_image=10**8, batch_size=20)
SMALL = TrainConfig(
    model="test_vil_ls", img_size=32, opt="adamw", lr=1e-3, epochs=6, warmup_epochs=2,
    batch_size=100, warmup_lr=1e-5, min_lr=1e-4, sched_on_updates=True,
)  # fmt: skip


@pytest.fixture
def _memory_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of memory have a file of their own, and take seconds."""
    monkeypatch.setattr(cost, "memory_of", lambda *_, **__: MEMORY)


pytestmark = pytest.mark.usefixtures("_memory_aside")


def _estimate(**changes: object) -> cost.Estimate:
    return estimated(create_model, replace(SMALL, **changes))  # type: ignore[arg-type]


def test_without_data_the_images_of_imagenet_are_assumed() -> None:
    found = _estimate(estimate=4)
    assert (found.images, found.assumed, found.config.num_classes) == (1_281_167, True, 1000)
    assert found.updates == 6 * (1_281_167 // 400)
    assert "1,281,167 (assumed: ImageNet-1K's" in report(found)


def test_with_data_the_images_are_those_of_the_data() -> None:
    found = _estimate(dataset="digits", grad_accum_steps=2)
    assert (found.images, found.assumed, found.config.num_classes) == (1433, False, 10)
    assert found.updates == 6 * 7  # 14 batches, two in an update
    assert "assumed" not in report(found)
    model = create_model("test_vil_ls", num_classes=10)
    assert found.params == (count_params(model),) * 2
    assert found.flops == count_flops(model.eval(), (32, 32))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sched_on_updates": False},
        {"warmup_epochs": 0},
        {"warmup_prefix": True, "cooldown_epochs": 2},
        {"sched": "none", "warmup_epochs": 0},
        {"sched": "step", "decay_epochs": 2, "stop_epoch": 5},
        {"lr": None, "lr_base": 0.1, "lr_base_size": 200, "opt": "sgd"},
    ],
)
def test_rates_and_updates_are_those_of_a_run(changes: dict[str, object]) -> None:
    config = replace(SMALL, **changes)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=learning_rate(config, 1))
    scheduler, epochs = make_schedule(optimizer, config, 14)
    rates = []
    for epoch in range(config.stop_epoch or epochs):  # as the trainer does
        for _ in range(14):
            rates.append(optimizer.param_groups[0]["lr"])
            if scheduler is not None:
                scheduler.step_update(len(rates))
        if scheduler is not None:
            scheduler.step(epoch + 1)
    found = _estimate(dataset="digits", **changes)
    assert found.updates == len(rates)
    assert found.rates == cost.Rates(start=rates[0], peak=max(rates), end=rates[-1])


@pytest.mark.filterwarnings("ignore")  # timm's, of its schedule
def test_the_rate_that_the_evaluations_decide_is_withheld() -> None:
    found = _estimate(dataset="digits", sched="plateau", sched_on_updates=False)
    assert found.rates.end is None
    assert "as the evaluations decide at the end" in report(found)


def test_hours_and_images_a_second_follow_from_the_peak() -> None:
    found = _estimate(estimate=2, dataset="digits")
    flops = 6 * count_flops(create_model("test_vil_ls", num_classes=10).eval(), (32, 32))
    images_per_second = found.images_per_second("NVIDIA H200", 0.3)
    assert images_per_second == pytest.approx(2 * 0.3 * PEAKS["NVIDIA H200"] * 1e12 / flops)
    seconds = 6 * 7 * 200 / images_per_second
    assert found.hours("NVIDIA H200", 0.3) == pytest.approx(seconds / 3600)
    assert found.hours("NVIDIA H200", 0.45) == pytest.approx(seconds / 1.5 / 3600)
    assert all(f"| {name} |" in report(found) for name in PEAKS)
    assert headline(found) in report(found)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"amp": False}, "mixed precision, and --no-amp turns it off"),
        ({"freeze": "backbone"}, "is not known with --freeze"),
    ],
)
def test_hours_that_are_not_known_are_withheld_with_the_reason(
    changes: dict[str, object], why: str
) -> None:
    found = _estimate(dataset="digits", **changes)
    assert "Hours are not said: the " in report(found)
    assert why in report(found)
    assert "hours" not in headline(found)


def test_what_cannot_be_counted_is_withheld_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(cost, "memory_of", fail)
    monkeypatch.setattr("vit_ls.count.count_flops", fail)
    said = report(_estimate(dataset="digits"))
    assert "the memory of test_vil_ls cannot be counted: no such thing" in said
    assert "Hours are not said: the FLOPs of test_vil_ls cannot be counted: no such thing." in said


def test_memory_is_said_with_the_largest_batch_of_each_size() -> None:
    said = report(_estimate(dataset="digits"))
    assert "1.00 GB of weights, gradients, optimiser and average + 2.00 GB of" in said
    # 0.9 of 24 GB is 21.6: 18.6 more than at 20 images
    assert "206 in 24 GB, 350 in 40 GB" in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--estimate", "0"], "--estimate must be positive, got 0"),
        (["--estimate", "many"], "--estimate must be"),
        (["--estimate", "--resume", "auto", "--experiment", "run"], "cannot go with --resume"),
        (["--estimate", "--data-dir", "/no/such"], "/no/such: no such folder"),
        (["--estimate", "--model", "test_vil_lz"], "did you mean 'test_vil_ls'?"),
        (["--estimate", "--dataset", "digits", "--batch-size", "9999"], "must fill an update"),
    ],
)
def test_a_wrong_use_is_one_line_with_status_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--model", "test_vil_ls", "--img-size", "32", "--workers", "0", *flags]
    try:
        status = job.command_line("train.py", lambda: train.main(argv))
    except SystemExit as stop:
        status = int(stop.code or 0)
    said = capsys.readouterr()
    assert (status, said.out, said.err.count("\n")) == (2, "", 1)
    assert message in said.err


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="--estimate N is for one process"):
        _estimate(dataset="digits")


def test_the_command_prints_it_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train.main(["--estimate", "2", "--experiment", "run"])
    said = capsys.readouterr().out
    assert said.startswith("test_vil_ls at 32 x 32, 2 x GPU. This is an estimate: nothing was run.")
    assert said.splitlines()[-1].startswith("Estimate: 0.6 M parameters, ")
    assert not list(tmp_path.iterdir())


def test_alone_it_is_of_one_gpu() -> None:
    config, _ = read(train.parser, TrainConfig, ["--estimate"])
    assert config.estimate == 1
