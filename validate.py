"""Evaluate an image classifier.

    python validate.py --model test_vil_ls --checkpoint output/RUN/model_best.pth.tar
    python validate.py --model vil_ls_medium --pretrained-path FILE --data-dir /data/imagenet

What is not given is taken from the run that wrote the checkpoint: data, labels, input size,
normalisation, batch size and precision; so the accuracy is the one that the run reported. `--model`
may be any model of timm's. Exit status: 0 done, 1 failed, 2 unusable settings.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from timm import create_model
from timm.utils import random_seed

import vit_ls  # noqa: F401 - registers the models
from vit_ls import data, errors, evaluate, job, run
from vit_ls.config import ConfigError, Parser, ValidateConfig, inherit, read

_logger = logging.getLogger(__name__)

parser = Parser(
    ValidateConfig, "validate.py", "Evaluate an image classifier; each image counts once."
)


def _parse_args(argv: Sequence[str] | None = None) -> ValidateConfig:
    """The configuration of a command line, over that of the checkpoint's run."""
    try:
        config, given = read(parser, ValidateConfig, argv)
        if config.checkpoint:
            config = inherit(config, given, run.run_settings(Path(config.checkpoint)))
    except (ConfigError, errors.CheckpointError) as error:
        parser.error(str(error))
    return config if config.data_dir or config.dataset else replace(config, dataset="digits")


def open_images(config: ValidateConfig) -> data.Images:
    """The images, with the labels that the weights have for their classes."""
    data.warn_of_idle(config)
    images = data.open_images(config, config.split, num_samples=config.num_samples)
    path = config.checkpoint or config.pretrained_path
    names = run.class_names(Path(path)) if path else None
    trusted = bool(config.class_map)
    labels = run.labels_to_use(names, images.class_to_idx, trusted=trusted)
    if labels is not None:
        images = data.open_images(
            config, config.split, num_samples=config.num_samples, class_map=labels
        )
        if images.class_to_idx != labels:
            raise ConfigError("the data's labels cannot be made those of the weights: --class-map.")
        _logger.info("the labels are those of the weights, which have %d classes.", len(labels))
    return images


def build(config: ValidateConfig, images: data.Images) -> tuple[Any, str]:
    """The model, checked to be of the images' classes, and which weights it has."""
    file = config.checkpoint or config.pretrained_path
    pretrained = not config.checkpoint and bool(config.pretrained or config.pretrained_path)
    if not pretrained:
        num_classes = data.checked_num_classes(images, config.num_classes)
        config = replace(config, num_classes=num_classes)
    random_seed(config.seed)  # random weights are the same in every process
    model = run.make_model(create_model, config)
    weights = "published" if pretrained else "random"
    if file:
        weights = run.which_weights(Path(file), config.weights_asked)
    if pretrained:
        run.check_classifier(model, config.model)
    elif config.checkpoint:
        run.load_weights(model, Path(config.checkpoint), weights=weights)
    if not config.random_weights:
        run.check_all_classes(
            model.num_classes,
            run.class_names(Path(file)) if file else None,
            images.class_to_idx,
            trusted=bool(config.class_map),
        )
    return model, weights


def main(argv: Sequence[str] | None = None) -> None:
    """Run one evaluation."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("timm").setLevel(logging.WARNING)
    config = _parse_args(argv)
    run.check_model_name(config.model)
    run.check_compiler(config)
    config.check()
    evaluate.check_reports(config)
    job.import_backends(config.device_modules)
    ranks = job.join(config.device, config.dist_timeout)
    job.set_precision(config, ranks.device)
    with job.supervised(config, ranks):
        images = open_images(config)
        real = config.real_labels
        real_labels = evaluate.real_labels_of(images.file_names, real) if real else None
        model, weights = build(config, images)
        data_config = data.input_config(config, model, use_test_size=not config.use_train_size)
        result = evaluate.evaluate(
            run.prepared(model, config, ranks.device),
            data.eval_loader(images, config, data_config, ranks, num_classes=model.num_classes),
            ranks,
            job.autocast(config.amp, config.amp_dtype, ranks.device),
            channels_last=config.channels_last,
            per_image=bool(real or config.per_class),
        )
        evaluate.check_evaluated(result, config.split, config.max_unreadable)
        if ranks.primary:
            mixed = job.mixes_precision(config.amp, ranks.device)
            about = {
                "model": config.model,
                "img_size": data_config["input_size"][-1],
                "weights": weights,
                "amp": config.amp_dtype if mixed else "off",
            }
            row = evaluate.summarised(result, config, about, images.class_to_idx, real_labels)
            sys.stdout.write(" ".join(f"{name}={value}" for name, value in row.items()) + "\n")


if __name__ == "__main__":
    job.end_process(job.command_line(parser.prog, main))
