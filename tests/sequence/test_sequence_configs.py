from pathlib import Path

import pytest
import torch
from torch import nn

from sequence import cli
from sequence.data import Split, Task
from sequence.models import make_model
from vit_ls.engine.recipe import make_optimizer, make_schedule

FOLDER = cli.CONFIGS
# steps, warm-up steps, peak rate: of the papers' tables
PAPERS = {
    "listops_ls": (5_000, 1_000, 1e-4),
    "text_ls": (20_000, 8_000, 1e-4),
    "retrieval_ls": (30_000, 8_000, 1e-4),
    "listops_cst": (20_000, 1_000, 1e-5),
    "text_cst": (20_000, 8_000, 2e-5),
    "retrieval_cst": (30_000, 800, 5e-5),
    "image_cst": (35_000, 175, 2e-4),
    "pathfinder_cst": (62_400, 312, 1e-4),
}
SMALL = {"listops", "digits", "bytes", "pathfinder"}


def test_every_file_is_known_here():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == SMALL | PAPERS.keys()


def parsed(name):
    return cli._parse(["--config", str(FOLDER / f"{name}.yaml")])


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_schedule_warms_up_and_falls_linearly_over_its_steps(name):
    config = parsed(name)
    steps, warmup, peak = PAPERS[name]
    optimizer = make_optimizer(nn.Linear(2, 2), config, 1)
    schedule, epochs = make_schedule(optimizer, config, config.epoch_updates)
    assert epochs * config.epoch_updates == steps

    def rate(update):
        schedule.step_update(update)
        return optimizer.param_groups[0]["lr"]

    assert rate(warmup) == pytest.approx(peak)
    assert rate(warmup // 2) == pytest.approx((config.warmup_lr + peak) / 2, rel=0.02)
    assert rate((warmup + steps) // 2) == pytest.approx(peak / 2, rel=0.01)
    assert rate(steps - 1) < peak / 500


LONG = {"retrieval_ls", "retrieval_cst", "text_ls", "text_cst", "listops_cst"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in sorted(SMALL | PAPERS.keys())
    ],
)
def test_a_configured_model_makes_an_update_at_its_length(name):
    config = parsed(name)
    pair = config.task == "retrieval"
    nothing = Split(torch.zeros(0), None)
    task = Task(nothing, nothing, nothing, vocab_size=17, num_classes=4, pair=pair)
    model = make_model(config, task)
    shape = (2, 2, config.length) if pair else (2, config.length)
    output = model(torch.randint(1, 17, shape))
    assert output.shape == ((2 * config.length, 17) if config.task == "bytes" else (2, 4))
    output.float().logsumexp(-1).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_header_of_a_file_names_the_file():
    for path in Path(FOLDER).glob("*.yaml"):
        assert path.stem in path.read_text().splitlines()[0]
