"""How a person sees a run: a progress bar or log lines, curves, TensorBoard, Weights & Biases."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torchvision.utils import save_image
from tqdm import tqdm

from vit_ls.config import ConfigError, TrainConfig, asdict
from vit_ls.engine.checkpoint import write_whole
from vit_ls.engine.ranks import Ranks
from vit_ls.engine.state import Progress

_logger = logging.getLogger(__name__)


class Reporter:
    """Shows progress, in the primary process only.

    Args:
        config: Which reports are wanted.
        folder: Of the run.
        total: Updates of the whole run.
        done: Updates already made.
    """

    def __init__(self, config: TrainConfig, folder: Path, *, total: int, done: int) -> None:
        self.folder, self.total = folder, total
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=total, initial=done, unit="step", dynamic_ncols=True)
        self._events = _tensorboard(folder) if config.log_tensorboard else None
        self._wandb = _wandb(config, folder) if config.log_wandb else None
        self._started, self._first = time.perf_counter(), done
        self._drawable = True
        self._saves_images = config.save_images

    def step(self) -> None:
        """Count one update."""
        if self._bar is not None:
            self._bar.update()

    def interval(self, at: Progress, values: dict[str, float], lr: float) -> None:
        """Show the values of the last interval, and the learning rate."""
        values = {"loss": values["loss"], "lr": lr, **values}
        text = " ".join(f"{name}={value:.4g}" for name, value in values.items())
        if self._bar is not None:
            self._bar.set_description(f"epoch {at.epoch}")
            self._bar.set_postfix_str(text, refresh=False)
        else:
            per_update = (time.perf_counter() - self._started) / max(at.updates - self._first, 1)
            left = _clock(per_update * (self.total - at.updates))
            _logger.info(
                "epoch %d update %d/%d %s left=%s", at.epoch, at.updates, self.total, text, left
            )
        self._scalars("step", values, at.updates)

    def images(self, at: Progress, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Write a batch of training images to a file, if that is wanted."""
        if self._saves_images:
            save_image(batch[0], self.folder / f"train-batch-{at.updates}.jpg", normalize=True)

    def epoch(self, rows: Sequence[dict[str, Any]], seconds: float) -> None:
        """Show the newest row of the summary, and draw the curves anew."""
        row = rows[-1]
        text = " ".join(f"{name}={value:.5g}" for name, value in row.items())
        if self._bar is not None:
            self._bar.write(f"{text} ({seconds:.1f} s)", file=sys.stderr)
        else:
            _logger.info("%s (%.1f s)", text, seconds)
        self._scalars("epoch", {name: float(value) for name, value in row.items()}, row["epoch"])
        self._draw(rows)

    def close(self) -> None:
        """End all reports."""
        if self._bar is not None:
            self._bar.close()
        if self._events is not None:
            self._events.close()
        if self._wandb is not None:
            self._wandb.finish()

    def _scalars(self, group: str, values: dict[str, float], step: int) -> None:
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(f"{group}/{name}", value, step)
        if self._wandb is not None:
            named = {f"{group}/{name}": value for name, value in values.items()}
            self._wandb.log({**named, f"{group}/number": step})

    def _draw(self, rows: Sequence[dict[str, Any]]) -> None:
        if not self._drawable:
            return
        try:
            from matplotlib.figure import Figure
        except ImportError:
            self._drawable = False
            _logger.warning("curves.png is not drawn: it needs matplotlib, of the extra 'train'.")
            return
        figure = Figure(figsize=(10, 4))
        for axes, suffix in zip(figure.subplots(1, 2), ("loss", "top1"), strict=True):
            for name in dict.fromkeys(name for row in rows for name in row):
                if name.endswith(suffix):
                    points = [(row["epoch"], row[name]) for row in rows if name in row]
                    axes.plot(*zip(*points, strict=True), marker=".", label=name)
            axes.set(xlabel="epoch", ylabel=suffix if suffix == "loss" else "top-1 (%)")
            axes.grid(alpha=0.3)
            axes.legend()
        write_whole(self.folder / "curves.png", lambda file: figure.savefig(file, format="png"))


class Timed:
    """An iterator that knows how long it was waited for, and the last item."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self.stream, self.waited = stream, 0.0
        self.last: Any = None

    def __iter__(self) -> "Timed":
        return self

    def __next__(self) -> Any:
        """The next item."""
        started = time.perf_counter()
        try:
            self.last = next(self.stream)
        finally:
            self.waited += time.perf_counter() - started
        return self.last


class Interval:
    """The updates between two log lines."""

    def __init__(self, stream: Timed, at: Progress) -> None:
        self._stream, self._waited = stream, stream.waited
        self._loss_sum, self._images = at.loss_sum, at.images
        self._started = time.perf_counter()

    def values(self, at: Progress, ranks: Ranks) -> dict[str, float]:
        """Mean loss here, images per second of all, share of time spent waiting, memory."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        images = at.images - self._images
        return {
            "loss": (at.loss_sum - self._loss_sum) / max(images, 1),
            "images_s": images * ranks.world_size / seconds,
            "data_wait": (self._stream.waited - self._waited) / seconds,
            "memory_gib": _memory_gib(ranks.device),
        }


def _memory_gib(device: torch.device) -> float:
    """Peak memory of the device, or of the process where it computes on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    import resource  # not on every system that has a GPU

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("--log-tensorboard needs the package tensorboard.") from error
    return SummaryWriter(str(folder))


def _wandb(config: TrainConfig, folder: Path) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ConfigError("--log-wandb needs the package wandb.") from error
    # A run that goes on in its folder goes on in its run there too.
    identity = folder / "wandb-run"
    known = identity.read_text(encoding="utf-8") if identity.is_file() else None
    run = wandb.init(
        project=config.wandb_project,
        name=folder.name,
        dir=str(folder),
        tags=config.wandb_tags,
        config=asdict(config),
        id=config.wandb_resume_id or known,
        resume="must" if config.wandb_resume_id else "allow",
    )
    write_whole(identity, lambda file: file.write(run.id.encode()))
    return run
