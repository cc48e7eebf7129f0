"""Evaluate an image classifier.

    python validate.py --model test_vil_ls --checkpoint output/RUN/model_best.pth.tar
    python validate.py --model vil_ls_medium --pretrained-path FILE --data-dir /data/imagenet

What is not given is taken from the run that wrote the checkpoint: data, input size, normalisation,
batch size and precision; so the accuracy is the one that the run reported. `--model` may be any
model of timm's. Exit status: 0 done, 1 failed, 2 unusable settings.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from timm import create_model

import vit_ls  # noqa: F401 - registers the models
from vit_ls import data, engine
from vit_ls.config import ConfigError, Parser, ValidateConfig, inherit, read

parser = Parser(
    ValidateConfig, "validate.py", "Evaluate an image classifier; each image counts once."
)


def _parse_args(argv: Sequence[str] | None = None) -> ValidateConfig:
    """The configuration of a command line, over that of the checkpoint's run."""
    try:
        config, given = read(parser, ValidateConfig, argv)
        if config.checkpoint:
            config = inherit(config, given, engine.run_settings(Path(config.checkpoint)))
    except (ConfigError, engine.CheckpointError) as error:
        parser.error(str(error))
    return config if config.data_dir or config.dataset else replace(config, dataset="digits")


def main(argv: Sequence[str] | None = None) -> None:
    """Run one evaluation."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("timm").setLevel(logging.WARNING)
    config = _parse_args(argv)
    engine.check_model_name(config.model)
    engine.check_compiler(config)
    engine.import_backends(config.device_modules)
    ranks = engine.join(config.device, config.dist_timeout)
    engine.set_precision(config, ranks.device)
    with engine.supervised(config, ranks):
        images = data.open_images(config, config.split, num_samples=config.num_samples)
        num_classes = data.checked_num_classes(images, config.num_classes)
        config = replace(config, num_classes=num_classes)
        model = engine.make_model(create_model, config)
        if config.checkpoint:
            engine.load_weights(model, Path(config.checkpoint), use_ema=config.use_ema)
        data_config = data.input_config(config, model, use_test_size=not config.use_train_size)
        result = engine.evaluate(
            engine.prepared(model, config, ranks.device),
            data.eval_loader(images, config, data_config, ranks),
            ranks,
            engine.autocast(config.amp, config.amp_dtype, ranks.device),
            channels_last=config.channels_last,
            per_image=bool(config.real_labels or config.per_class),
        )
        if ranks.primary:
            row = {"model": config.model, "img_size": data_config["input_size"][-1]}
            row |= engine.summarised(result, config, images.class_to_idx, images.file_names)
            sys.stdout.write(" ".join(f"{name}={value}" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    sys.exit(engine.command_line(parser.prog, main))
