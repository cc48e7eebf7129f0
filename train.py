"""Train an image classifier.

    python train.py                                   # a small model on scikit-learn's digits
    python train.py --config configs/vil_ls_medium_224.yaml --data-dir /data/imagenet
    torchrun --nproc-per-node 8 train.py --config ... --data-dir ...
    python train.py --config ... --estimate 8         # what that would cost; trains nothing

Flags have the names and meaning of timm's train.py. Exit status: 0 done, 1 failed, 2 unusable
settings, 85 stopped by SIGTERM, SIGUSR1 or SIGINT after saving.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from timm import create_model
from timm.models import safe_model_name
from timm.utils import random_seed

import vit_ls  # noqa: F401 - registers the models
from vit_ls import data, job, run
from vit_ls.config import ConfigError, Parser, TrainConfig, read
from vit_ls.train import Trainer, check_recipe, make_teacher

DIGITS = Path(__file__).parent / "configs" / "digits.yaml"

parser = Parser(
    TrainConfig, "train.py", "Train an image classifier; without arguments, on the digits."
)


def _parse_args(argv: Sequence[str] | None = None) -> tuple[TrainConfig, set[str]]:
    """The configuration of a command line, and the settings that were given."""
    try:
        config, given = read(parser, TrainConfig, argv, fallback=DIGITS)
    except ConfigError as error:
        parser.error(str(error))
    if config.resume == "auto" and not config.experiment:
        parser.error("--resume auto needs --experiment NAME: it continues the run of that folder.")
    return config, given


def _check(config: TrainConfig) -> None:
    config.check()
    run.check_model_name(config.model)
    run.check_compiler(config)
    check_recipe(create_model, config)


def build(config: TrainConfig, ranks: job.Ranks) -> Trainer:
    """Check the settings and the data, then build the model and the run."""
    _check(config)
    train_images, held_out_images, num_classes = data.open_splits(config)
    config = replace(config, num_classes=num_classes)

    random_seed(config.seed)  # the same weights in every process
    model = run.make_model(create_model, config, classes=train_images.class_to_idx)
    config = replace(config, num_classes=model.num_classes)
    teacher = make_teacher(create_model, config, classes=train_images.class_to_idx)
    data_config = data.input_config(config, model)
    # timm's distillation asks the model how its images were normalised.
    model.pretrained_cfg |= {"mean": data_config["mean"], "std": data_config["std"]}
    return Trainer(
        run.prepared(model, config, ranks.device),
        teacher,
        data.train_batches(train_images, config, data_config, ranks),
        held_out_images and data.eval_loader(held_out_images, config, data_config, ranks),
        config,
        ranks,
        image_size=data_config["input_size"][1:],
        title=f"{safe_model_name(config.model)}-{data_config['input_size'][-1]}",
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run one training."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("timm").setLevel(logging.WARNING)
    config, _ = _parse_args(argv)
    if config.estimate is not None:
        from vit_ls import estimate  # of private names of torch, which a training does not need

        _check(config)
        sys.stdout.write(estimate.report(estimate.estimated(create_model, config)))
        return
    # From here on, so that a signal during the start is not lost.
    with job.StopRequests() as stop:
        job.import_backends(config.device_modules)
        ranks = job.join(config.device, config.dist_timeout, lambda: stop.requested)
        job.set_precision(config, ranks.device)
        if not ranks.primary:
            logging.getLogger().setLevel(logging.WARNING)
        with job.supervised(config, ranks):
            best = build(config, ranks).fit(stop)
        if ranks.primary:
            found = "not evaluated" if best.top1 is None else f"best val_top1={best.top1:.3f}"
            sys.stdout.write(f"{found} epoch={best.epoch} checkpoint={best.checkpoint}\n")


if __name__ == "__main__":
    job.end_process(job.command_line(parser.prog, main))
