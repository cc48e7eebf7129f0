"""What a configuration would take, without its data and without a device."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from timm.utils import is_distributed_env
from torch import nn

from vit_ls import data
from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data.seeded import EpochSampler
from vit_ls.data.streaming.order import AnyOrder
from vit_ls.errors import one_line
from vit_ls.estimate.memory import Memory, memory_of
from vit_ls.job import Ranks
from vit_ls.run import made, prepared
from vit_ls.train.recipe import learning_rate, make_schedule, outline
from vit_ls.train.utilisation import PEAKS, training_flops, why_unknown

IMAGENET_IMAGES, IMAGENET_CLASSES = 1_281_167, 1000
"""Of ImageNet-1K's training split, which is assumed where no data is named."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Learning rates of the schedule, before factors of layers; None where the run decides it."""

    start: float
    peak: float
    end: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run would take.

    Attributes:
        config: Its settings, with the number of classes.
        size: Channels, height and width of its images, in pixels.
        images: Of the training split; None where a stream does not say.
        assumed: Whether that is ImageNet-1K's number, since no data is named.
        params: Parameters, and those that are trained.
        updates: Of the whole run.
        epochs: Of the whole run.
        rates: Learning rates.
        flops: Multiply-adds of one image's forward pass, or why they are not known.
        memory: Of one GPU, or why it is not known.
    """

    config: TrainConfig
    size: tuple[int, int, int]
    images: int | None
    assumed: bool
    params: tuple[int, int]
    updates: int
    epochs: int
    rates: Rates
    flops: int | str
    memory: Memory | str

    @property
    def gpus(self) -> int:
        """How many compute it."""
        return self.config.estimate or 1

    @property
    def images_per_update(self) -> int:
        """Of all GPUs."""
        return self.config.batch_size * self.config.grad_accum_steps * self.gpus

    @property
    def no_hours(self) -> str | None:
        """Why its hours are not known, or None."""
        return self.flops if isinstance(self.flops, str) else why_unknown(self.config)

    def images_per_second(self, gpu: str, share: float) -> float:
        """What the loaders of all processes must deliver.

        Args:
            gpu: A row of `PEAKS`.
            share: Of its peak that the training reaches.
        """
        if isinstance(self.flops, str):
            raise TypeError(self.flops)
        return share * PEAKS[gpu] * 1e12 * self.gpus / training_flops(self.flops)

    def hours(self, gpu: str, share: float) -> float:
        """Of all updates; see `images_per_second`."""
        images = self.updates * self.images_per_update
        return images / self.images_per_second(gpu, share) / 3600


def estimated(factory: Callable[..., nn.Module], config: TrainConfig) -> Estimate:
    """What a run of these settings would take on `config.estimate` GPUs.

    Args:
        factory: timm's `create_model`.
        config: The settings, checked.

    Raises:
        ConfigError: The data that is named cannot be opened, or the model cannot be built.
    """
    if is_distributed_env():
        raise ConfigError("--estimate N is for one process: say the number of GPUs as N.")
    mixed = replace(config, amp=config.amp is not False, sync_bn=False)
    found, classes = None, config.num_classes or IMAGENET_CLASSES
    if config.data_dir or config.dataset:
        found, _, classes = data.open_splits(config)
    model = outline(factory, replace(mixed, num_classes=classes))
    mixed = replace(mixed, num_classes=getattr(model, "num_classes", classes))
    input_config = data.input_config(mixed, model)
    batches = _batches(found, mixed, input_config)
    updates, epochs, rates = _schedule(mixed, batches)
    with torch.device("meta"):  # it may make norms anew
        model = prepared(model, mixed, torch.device("meta"))
    size = input_config["input_size"]
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return Estimate(
        config=mixed,
        size=size,
        images=IMAGENET_IMAGES if found is None else _count(found),
        assumed=found is None,
        params=(sum(n for n, _ in sizes), sum(n for n, trained in sizes if trained)),
        updates=updates,
        epochs=epochs,
        rates=rates,
        flops=_flops(factory, mixed, size),
        memory=_memory(factory, model, mixed, size),
    )


def _count(images: data.Images) -> int | None:
    return None if images.streamed else len(images.dataset)


def _batches(
    images: data.Images | None, config: TrainConfig, input_config: dict[str, object]
) -> int:
    """Of an epoch, in each process."""
    processes = config.estimate or 1
    if images is None:
        order = AnyOrder(IMAGENET_IMAGES)
        return len(
            EpochSampler(order, config.batch_size, seed=0, rank=0, world_size=processes, repeats=0)
        )
    # A stream is divided among processes where it is opened, which here is one.
    place = Ranks(torch.device("cpu"), 0, 1 if images.streamed else processes)
    found = len(data.train_batches(images, replace(config, workers=0), input_config, place))
    return found // processes if images.streamed else found


def _schedule(config: TrainConfig, batches: int) -> tuple[int, int, Rates]:
    """Updates, epochs, and the rates that the run's own schedule gives."""
    per_epoch = -(-batches // config.grad_accum_steps)
    peak = learning_rate(config, config.estimate or 1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule, epochs = make_schedule(optimizer, config, per_epoch)
    first, last = config.start_epoch or 0, config.stop_epoch or epochs
    if last <= first:
        raise ConfigError(f"nothing is left to train: epoch {first} is the start, of {last}.")
    (group,) = optimizer.param_groups
    rates = [group["lr"]]
    if schedule is None or config.sched == "plateau":
        end = peak if schedule is None else None
        rates.append(peak)
    else:
        for epoch in range(first, last):
            schedule.step(epoch)
            for update in (epoch * per_epoch, (epoch + 1) * per_epoch - 1):
                schedule.step_update(update)
                rates.append(group["lr"])
        end = rates[-1]
        rates[0] = rates[1]
    return (last - first) * per_epoch, last - first, Rates(start=rates[0], peak=max(rates), end=end)


def _flops(
    factory: Callable[..., nn.Module], config: TrainConfig, size: tuple[int, int, int]
) -> int | str:
    # Tracing a model of timm's may fail in any way; the number is then withheld.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tracing, and of importing fvcore
            from vit_ls.count import count_flops

            return count_flops(outline(factory, config, "cpu").eval(), size[1:])
    except Exception as error:
        return f"the FLOPs of {config.model} cannot be counted: {one_line(error)}"


def _memory(
    factory: Callable[..., nn.Module],
    model: nn.Module,
    config: TrainConfig,
    size: tuple[int, int, int],
) -> Memory | str:
    name, teacher = config.kd_model_name, None
    # Fake tensors have no values: a model may ask for one, or for a kernel that knows none.
    try:
        if name:
            more = {"num_classes": config.num_classes, "in_chans": size[0]}
            with torch.device("meta"):
                teacher = made(name, lambda: factory(name, **more))
        return memory_of(model, teacher, size, config, processes=config.estimate or 1)
    except Exception as error:
        return f"the memory of {config.model} cannot be counted: {one_line(error)}"
