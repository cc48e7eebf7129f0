"""Every file in configs/ can be trained with: it is read, built at its own resolution, and run."""

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import train
from vit_ls import job
from vit_ls.config import TrainConfig, read
from vit_ls.estimate import estimated, headline
from vit_ls.paper import LONG_SHORT_TABLE_5
from vit_ls.run import check_model_name, make_model
from vit_ls.train import check_recipe, make_optimizer

FOLDER = Path(train.__file__).parent / "configs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SMALL = ("digits", "vil_ls_tiny_224", "cvt_ls_13_224", "cst_vit_small_patch16_224")
BY_SIZE = [
    name
    if name == "digits"
    else pytest.param(name, marks=pytest.mark.landing if name in SMALL else pytest.mark.slow)
    for name in NAMES
]
# What the released code of ViL-LS leaves without weight decay (names that contain ...).
REFERENCE_NO_DECAY = (
    *("pos_embed", "cls_token", "norm.weight", "norm.bias", "norm_embed", "head.bias"),
    "relative_position",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four random training images and one held-out one in each of two classes."""
    root = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for split, count in (("train", 4), ("validation", 1)):
        for label in ("a", "b"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (64, 80, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def _config(name: str, **changes: object) -> TrainConfig:
    config, _ = read(train.parser, TrainConfig, ["--config", str(FOLDER / f"{name}.yaml")])
    return replace(config, **changes)  # type: ignore[arg-type]


def _model(config: TrainConfig, device: str = "meta") -> nn.Module:
    config = replace(config, num_classes=config.num_classes or 10)
    with torch.device(device):
        return make_model(train.create_model, config)


@pytest.mark.parametrize("name", NAMES)
def test_config_is_read_and_its_header_gives_the_command(name: str) -> None:
    config = _config(name)
    config.check()
    check_recipe(train.create_model, config)
    check_model_name(config.model)
    size = f"{config.img_size} x {config.img_size}"
    header = _header(name)
    begin = (
        "# Train a small model on" if name == "digits" else f"# Train {config.model} on ImageNet"
    )
    assert header[0].startswith(begin)
    assert f" {size}" in header[0]
    assert header[0].rstrip(".").endswith((f"{config.epochs} epochs", "on a CPU"))
    command = " ".join(line.lstrip("# ").rstrip("\\") for line in header[2:4])
    assert "python train.py" in command or f"--config configs/{name}.yaml " in command


@pytest.mark.parametrize("name", NAMES)
def test_a_header_says_what_the_paper_prints_and_what_was_not_measured(name: str) -> None:
    config = _config(name)
    said = " ".join(line.lstrip("# ") for line in _header(name))
    printed = [
        row
        for row in LONG_SHORT_TABLE_5
        if (row.model, row.img_size) == (config.model, config.img_size) and not row.options
    ]
    if printed:
        assert f"Paper: {printed[0].top1:g} % top-1, printed in table 5" in said
        assert "not measured here. It prints" in said
    else:
        assert "Paper: no row for this model" in said
    assert name == "digits" or "this file was not run on ImageNet" in said


@pytest.mark.landing
@pytest.mark.filterwarnings("ignore")  # of tracing
@pytest.mark.parametrize("name", BY_SIZE)
def test_a_header_says_what_estimate_says(name: str) -> None:
    said = " ".join(line.lstrip("# ") for line in _header(name))
    gpus = int(re.search(r"--estimate (\d+)", said)[1])  # type: ignore[index]
    text = (FOLDER / f"{name}.yaml").read_text()
    assert name == "digits" or f"per GPU; {gpus} GPUs make the global batch of 1024" in text
    found = estimated(train.create_model, _config(name, estimate=gpus))
    assert headline(found) in said


def _header(name: str) -> list[str]:
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    return list(itertools.takewhile(lambda line: line.startswith("#"), lines))


@pytest.mark.parametrize("name", BY_SIZE)
def test_config_trains_at_its_own_resolution(name: str, images: Path, tmp_path: Path) -> None:
    data = {} if name == "digits" else {"data_dir": str(images)}
    images_at_once = 4 if _config(name).aug_repeats > 2 else 2
    config = _config(
        name, batch_size=images_at_once, workers=0, output=str(tmp_path), device="cpu", **data
    )
    trainer = train.build(config, job.Ranks(torch.device("cpu")))
    weights = dict(trainer.task.named_parameters())
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    trainer.task.train()
    stream = trainer.train.epoch(0)
    for _ in range(2):
        inputs, targets = next(stream)
        assert inputs.shape == (images_at_once, 3, config.img_size, config.img_size)
        outcome = trainer.updater(iter([(inputs, targets)]), 1)
        assert outcome.applied
        assert torch.isfinite(outcome.loss_sum)
    unchanged = [key for key, weight in weights.items() if torch.equal(weight, before[key])]
    # Stochastic depth can drop a block in both steps.
    assert len(unchanged) < len(weights) / 4


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_in_one_weight_decay_group(name: str) -> None:
    config = _config(name)
    model = _model(config)
    optimizer = make_optimizer(model, config, 1)
    members = list(
        itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
    )
    assert len(members) == len(set(map(id, members)))
    assert set(map(id, members)) == set(map(id, model.parameters()))

    names = {id(parameter): key for key, parameter in model.named_parameters()}
    decayed = [
        names[id(parameter)]
        for group in optimizer.param_groups
        for parameter in group["params"]
        if group["weight_decay"] > 0
    ]
    sys.stdout.write(f"{name}: weight decay on\n  " + "\n  ".join(decayed) + "\n")
    assert decayed
    for key in decayed:
        assert not any(part in key for part in REFERENCE_NO_DECAY), key
        assert model.get_parameter(key).ndim > 1, key
