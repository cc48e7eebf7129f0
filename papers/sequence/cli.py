"""The command `python -m papers.sequence`: data, model, training as in train.py, report."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from timm.utils import random_seed
from torch import nn

from papers.sequence.data import Batches, HeldOut, Task
from papers.sequence.models import NextToken, make_model, nats_by_place
from papers.sequence.report import Findings, accuracies, bits, write_report
from papers.sequence.settings import SequenceConfig, check_given
from papers.sequence.tasks import listops, pathfinder, released, text
from vit_ls import evaluate, job, run
from vit_ls.config import ConfigError, Parser, read
from vit_ls.count import count_params
from vit_ls.train import Best, Trainer

CONFIGS = Path(__file__).parent / "configs"

parser = Parser(
    SequenceConfig,
    "python -m papers.sequence",
    "Train on one of the papers' sequence tasks; without data, on a small set of its own.",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, test the best weights, and write the report."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("timm").setLevel(logging.WARNING)
    config = _parse(sys.argv[1:] if argv is None else list(argv))
    with job.StopRequests() as stop:
        ranks = job.join(config.device, config.dist_timeout, lambda: stop.requested)
        job.set_precision(config, ranks.device)
        if not ranks.primary:
            logging.getLogger().setLevel(logging.WARNING)
        with job.supervised(config, ranks):
            task = open_task(config)
            if min(map(len, (task.train.ids, task.valid.ids, task.test.ids))) == 0:
                raise ConfigError(f"Each split of {task.source} must have samples, got none.")
            random_seed(config.seed)
            model = make_model(config, task).to(ranks.device)
            if config.initial_checkpoint:
                start = Path(config.initial_checkpoint)
                with run.named_by("--initial-checkpoint"):
                    run.load_weights(model, start, flag="--initial-checkpoint")
            best = _trainer(model, task, config, ranks).fit(stop)
            ranks.meet()  # the first process is still writing what all of them test
            _test(model, best, task, config, ranks)


def _parse(argv: list[str]) -> SequenceConfig:
    """The settings; without a file, those of the task's small run."""
    try:
        given = vars(parser.parse_args(argv))
        name = str(given.get("task", "listops"))
        small = CONFIGS / f"{name}.yaml"
        if "config" not in given and small.is_file():
            argv = ["--config", str(small), *argv]
        config, names = read(parser, SequenceConfig, argv)
        check_given(names - {"model", "num_classes"})
        config = replace(config, model=f"{config.task}_{config.attention}")
        config.check()
    except ConfigError as error:
        parser.error(str(error))
    return config


def open_task(config: SequenceConfig) -> Task:
    """The data: read where it is given, generated or embedded where it is not.

    Raises:
        ConfigError: It is missing, damaged or of another task, or too little for one batch.
    """
    folder, length = Path(config.data_dir), config.length
    if config.task == "listops" and config.data_dir:
        return listops.read(folder, max_length=length, brackets=config.brackets)
    if config.task == "listops":
        return listops.generated(
            config.samples,
            depth=config.formula_depth,
            length=config.formula_length,
            max_length=length,
            brackets=config.brackets,
            seed=config.data_seed,
        )
    if config.task == "bytes" and config.data_dir:
        return text.published(folder, length, config.memory)
    if config.task == "bytes":
        return text.library(length, config.samples * length, config.data_seed, memory=config.memory)
    if config.task == "digits" and config.data_dir:
        raise ConfigError("--task digits brings its own data, got --data-dir.")
    if config.task == "digits":
        return released.digits()
    if config.task == "pathfinder" and config.data_dir:
        return pathfinder.read(folder, difficulty=config.difficulty)
    if config.task == "pathfinder":
        return pathfinder.generated(
            config.samples, difficulty=config.difficulty, seed=config.data_seed
        )
    if config.task == "image":
        return released.image(folder)
    if config.task == "text":
        return released.text(folder, max_length=length)
    return released.retrieval(folder, max_length=length)


def _trainer(model: nn.Module, task: Task, config: SequenceConfig, ranks: job.Ranks) -> Trainer:
    batches = Batches(
        task.train,
        config.batch_size,
        ranks,
        seed=config.seed,
        epoch_updates=config.epoch_updates,
        classes=[f"{config.task} {number}" for number in range(task.num_classes)],
    )
    longest = task.train.longest
    if longest > config.length:
        raise ConfigError(
            f"--length must be at least {longest} for this data, got {config.length}."
        )
    if not batches.fills_a_batch:
        raise ConfigError(
            f"--batch-size must be at most the {len(task.train.ids)} training samples, divided by "
            f"{ranks.world_size} processes, got {config.batch_size}."
        )
    size = config.validation_batch_size or config.batch_size
    held_out = HeldOut(task.valid, size, ranks)
    return Trainer(
        model,
        None,
        batches,
        held_out,
        config,
        ranks,
        image_size=(1, longest),
        title=f"sequence-{config.model}",
    )


def _test(
    model: nn.Module, best: Best, task: Task, config: SequenceConfig, ranks: job.Ranks
) -> None:
    """Evaluate the best weights on the test split, and write what came out."""
    run.load_weights(model, best.checkpoint)
    size = config.validation_batch_size or config.batch_size
    context = job.autocast(config.amp, config.amp_dtype, ranks.device)
    batches = HeldOut(task.test, size, ranks)
    findings: Findings
    if task.test.labels is None:
        by_place = nats_by_place(model, batches, ranks, context, task.test.longest)
        findings = bits(by_place, task.test.tokens)
    else:
        said = evaluate.evaluate(model, batches, ranks, context, per_image=True)
        findings = accuracies(task, said)
    if not ranks.primary:
        return
    folder = best.checkpoint.parent
    parameters = count_params(model)
    line = write_report(folder, config, task, findings, parameters=parameters, device=ranks.device)
    sys.stdout.write(f"{line} epoch={best.epoch} checkpoint={best.checkpoint}\n")
    if config.generate and isinstance(model, NextToken):
        written = _continued(model, config, ranks.device)
        (folder / "sample.txt").write_text(written, encoding="utf-8")
        sys.stdout.write(written + "\n")


def _continued(model: NextToken, config: SequenceConfig, device: torch.device) -> str:
    """What the model makes of the prompt, byte by byte."""
    prompt = torch.tensor(list(config.prompt.encode() or b"\n"), device=device)
    drawn = torch.Generator(device).manual_seed(config.seed)
    ids = model.model.generate(prompt[None], config.generate, temperature=0.8, generator=drawn)
    return bytes(ids[0].tolist()).decode(errors="replace")
