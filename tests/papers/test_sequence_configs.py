from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from papers.sequence import cli
from papers.sequence.data import Split, Task
from papers.sequence.models import make_model
from vit_ls.count import count_params
from vit_ls.paper import COMPOSITE_SLICE_LRA, LONG_SHORT_LRA
from vit_ls.train.recipe import make_optimizer, make_schedule

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
# of rows whose settings are not printed: what the files say that they take instead
UNPUBLISHED = {"image_ls": (35_000, 175, 1e-4), "pathfinder_ls": (62_400, 312, 1e-4)}
# rates of the phases, batches of eight processes, millions of parameters
LANGUAGE = {
    "enwik8_ls": ((2.5e-4, 1.25e-4, 6.25e-5), (32, 32, 32), 44.3),
    "text8_ls": ((5e-4, 2.5e-4, 1.25e-4), (32, 32, 16), 44.3),
    "enwik8_ls_large": ((2.5e-4, 1.25e-4, 6.25e-5), (32, 64, 32), 110.6),
}
SMALL = {"listops", "digits", "bytes", "pathfinder"}
SYSTEMS = {
    "ls": {
        "Full attention": {"attention": "full"},
        "Dynamic projection, best": {"attention": "ls", "window": 0},
        "Transformer-LS, w,r = 8,32": {"attention": "ls", "window": 8, "rank": 32},
        "Transformer-LS, best": {"attention": "ls"},
    },
    "cst": {
        "Transformer": {"attention": "full", "pooling": "mean"},
        "Long-Short Transformer": {"attention": "ls", "pooling": "mean"},
        "CST, L = 8": {"attention": "cst", "slice_size": 8, "alpha": 1},
        "CST, L = 16": {"attention": "cst", "slice_size": 16, "alpha": 1},
        "CST, L = 32": {"attention": "cst", "slice_size": 32, "alpha": 1},
        "CST, L = 64": {"attention": "cst", "slice_size": 64, "alpha": 1},
        "CST, L = 16, alpha = 2": {"attention": "cst", "slice_size": 16, "alpha": 2},
        "CST, L = 16, alpha = 3": {"attention": "cst", "slice_size": 16, "alpha": 3},
    },
}
BEST_LS = {
    # task: w,r of Transformer-LS, and r of the projection alone
    "listops": ((16, 2), 4),
    "text": ((1, 1), 128),
    "retrieval": ((1, 254), 256),
}


def test_every_file_is_known_here():
    known = SMALL | PAPERS.keys() | LANGUAGE.keys() | UNPUBLISHED.keys()
    assert {path.stem for path in FOLDER.glob("*.yaml")} == known


def rows_in(name):
    """What the header of a file says of each row: its value, and the settings of its flags."""
    header = (FOLDER / f"{name}.yaml").read_text().split("task:")[0]
    for line in header.splitlines():
        if line.startswith("#   "):
            system, value, flags = line[4:].rsplit(": ", 2)
            flags = flags.removeprefix("this file").split()
            yield system, float(value), parsed(name, *flags)


@pytest.mark.parametrize("name", PAPERS)
def test_a_header_has_the_papers_row_and_settings_of_each_system_that_is_here(name):
    task, kind = name.split("_")
    table = LONG_SHORT_LRA if kind == "ls" else COMPOSITE_SLICE_LRA
    printed = {row.system: getattr(row, task) for row in table}
    rows = list(rows_in(name))
    assert [system for system, _, _ in rows] == list(SYSTEMS[kind])
    for system, value, config in rows:
        assert value == printed[system]
        for setting, expected in SYSTEMS[kind][system].items():
            assert getattr(config, setting) == expected
        if kind == "ls":
            best, alone = BEST_LS[task]
            if system == "Transformer-LS, best":
                assert (config.window, config.rank) == best
            if system == "Dynamic projection, best":
                assert config.rank == alone


@pytest.mark.parametrize("name", UNPUBLISHED)
def test_a_row_without_printed_settings_has_the_papers_value_and_says_so(name):
    printed = {row.system: getattr(row, name.split("_")[0]) for row in LONG_SHORT_LRA}
    [(system, value, config)] = rows_in(name)
    assert value == printed[system]
    assert (config.attention, (config.window, config.rank)) == ("ls", BEST_LS["listops"][0])
    assert "prints an accuracy and no settings" in (FOLDER / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_language_models_phases_have_the_papers_lengths_rates_and_batches(name):
    rates, batches, millions = LANGUAGE[name]
    header = (FOLDER / f"{name}.yaml").read_text().split("task:")[0]
    phases = [line[4:].split() for line in header.splitlines() if line.startswith("#   ")]
    configs = [parsed(name, *flags) for flags in ([], *phases)]
    for number, config in enumerate(configs):
        assert config.length == config.memory == 2048 * 2**number
        assert config.lr == rates[number]
        assert 8 * config.batch_size == batches[number]
        steps = (430_000, 10_000) if number == 0 else (50_000, 5_000)
        updates = config.epoch_updates
        assert (config.epochs * updates, config.warmup_epochs * updates) == steps
        assert bool(config.initial_checkpoint) == (number > 0)
        assert rate_after(config, steps[1]) == rate_after(config, steps[0] - 1) == config.lr
        assert rate_after(config, steps[1] // 2) == pytest.approx(config.lr / 2)
    nothing = Split(torch.zeros(0), None)
    task = Task(nothing, nothing, nothing, vocab_size=256, num_classes=256)
    with torch.device("meta"):
        model = make_model(configs[0], task)
    assert count_params(model) / 1e6 == pytest.approx(millions, abs=0.1)


def parsed(name, *flags):
    return cli._parse(["--config", str(FOLDER / f"{name}.yaml"), *flags])


def rate_after(config, update):
    optimizer = make_optimizer(nn.Linear(2, 2), config, 1)
    schedule, _ = make_schedule(optimizer, config, config.epoch_updates)
    schedule.step_update(update)
    return optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("name", PAPERS | UNPUBLISHED)
def test_a_papers_schedule_warms_up_and_falls_linearly_over_its_steps(name):
    config = parsed(name)
    steps, warmup, peak = (PAPERS | UNPUBLISHED)[name]
    _, epochs = make_schedule(torch.optim.SGD(nn.Linear(2, 2).parameters()), config, 1)
    assert epochs * config.epoch_updates == steps
    assert rate_after(config, warmup) == pytest.approx(peak)
    middle = (config.warmup_lr + peak) / 2
    assert rate_after(config, warmup // 2) == pytest.approx(middle, rel=0.02)
    assert rate_after(config, (warmup + steps) // 2) == pytest.approx(peak / 2, rel=0.01)
    assert rate_after(config, steps - 1) < peak / 500


# dropout, attention dropout, weight decay, tokens read: of the released scripts
RELEASED = {
    "listops_ls": (0.0, 0.0, 0.0, 2048),
    "text_ls": (0.0, 0.0, 0.01, 4000),
    "retrieval_ls": (0.1, 0.1, 0.01, 4096),
    "enwik8_ls": (0.2, 0.0, 0.01, 2048),
    "text8_ls": (0.2, 0.0, 0.01, 2048),
    "enwik8_ls_large": (0.4, 0.0, 0.1, 2048),
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_recipe_regularises_as_the_released_script_does(name):
    config = parsed(name)
    found = (config.drop or 0.0, config.attn_drop, config.weight_decay, config.length)
    assert found == RELEASED[name]
    small = replace(config, dim=16, depth=2, num_heads=2, hidden=16, length=32, memory=0)
    nothing = Split(torch.zeros(0), None)
    task = Task(nothing, nothing, nothing, vocab_size=17, num_classes=4)
    model = make_model(small, task)
    optimizer = make_optimizer(model, small, 1)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    # decoupled from the gradient, and of every parameter, biases and norms too
    for n, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), before[n] * (1 - config.lr * config.weight_decay))


def test_the_recipe_of_retrieval_drops_weights_of_attention():
    config = replace(parsed("retrieval_ls"), drop=0.0, rank=3, length=32, dim=16)
    nothing = Split(torch.zeros(0), None)
    task = Task(nothing, nothing, nothing, vocab_size=17, num_classes=2, pair=True)
    ids = torch.randint(1, 17, (2, 2, 32))
    for attention in ("ls", "full"):
        model = make_model(replace(config, attention=attention), task).train()
        assert not torch.equal(model(ids), model(ids))
        assert torch.equal(model.eval()(ids), model(ids))


@pytest.mark.parametrize("name", [name for name in RELEASED if name in PAPERS])
def test_what_docs_differences_says_of_the_arenas_recipes_is_so(name):
    """Chosen every 500 updates, and a beta1 that stays, where the scripts do otherwise."""
    config = parsed(name)
    assert config.epoch_updates == 500
    optimizer = make_optimizer(nn.Linear(2, 2), config, 1)
    schedule, _ = make_schedule(optimizer, config, config.epoch_updates)
    for update in (0, 100, PAPERS[name][1], PAPERS[name][0] - 1):
        schedule.step_update(update)
        assert all(group["betas"] == (0.9, 0.999) for group in optimizer.param_groups)


LONG = {"retrieval_ls", "retrieval_cst", "text_ls", "text_cst", "listops_cst"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
        for name in sorted(SMALL | PAPERS.keys() | UNPUBLISHED.keys())
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
