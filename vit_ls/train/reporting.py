"""How a person sees a run: a progress bar or log lines, curves, TensorBoard, Weights & Biases."""

import io
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torchvision.utils import save_image
from tqdm import tqdm

from vit_ls.config import ConfigError, TrainConfig, asdict
from vit_ls.errors import blamed_on, install, one_line
from vit_ls.job.ranks import Ranks, agreed
from vit_ls.run.folder import TIMING, read_rows, write_rows
from vit_ls.run.state import Progress
from vit_ls.style import look, picture
from vit_ls.train.profiling import Profile
from vit_ls.whole import write_whole

_logger = logging.getLogger(__name__)


def check_reports_of_run(config: TrainConfig, ranks: Ranks) -> None:
    """Raise ConfigError in all processes for a report that could not be begun; nothing is made."""
    agreed(ranks, lambda: _check_reports(config) if ranks.primary else None)


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
        self._events = _writer()(str(folder)) if config.log_tensorboard else None
        self._wandb = _wandb(config, folder) if config.log_wandb else None
        self._started, self._first = time.perf_counter(), done
        self._profile = Profile(config.profile, folder) if config.profile else None
        self._drawable = True
        self._saves_images = config.save_images

    def step(self) -> None:
        """Count one update."""
        if self._bar is not None:
            self._bar.update()
        if self._profile is not None:
            self._profile.step()

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

    def epoch(self, rows: Sequence[dict[str, Any]], timing: dict[str, float]) -> None:
        """Show the newest row of the summary and what it took, and draw the curves anew."""
        row = rows[-1]
        text = " ".join(f"{name}={value:.5g}" for name, value in (row | timing).items())
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            _logger.info("%s", text)
        values = {name: float(value) for name, value in (row | timing).items()}
        self._scalars("epoch", values, row["epoch"])
        self._write_timing(row["epoch"], timing)
        self._draw(rows)

    def close(self) -> None:
        """End all reports."""
        if self._profile is not None:
            self._profile.close()
        if self._bar is not None:
            self._bar.close()
        if self._events is not None:
            self._events.close()
        if self._wandb is not None:
            self._wandb.finish()

    def _write_timing(self, epoch: int, timing: dict[str, float]) -> None:
        """Add a row to the table of times; it is none of the summary, which a run repeats."""
        path = self.folder / TIMING
        rows = [row for row in read_rows(path) if int(row["epoch"]) < epoch]
        values = {name: f"{value:.5g}" for name, value in timing.items()}
        write_rows(path, [*rows, {"epoch": epoch, **values}])

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
        content = io.BytesIO()
        try:
            _curves(rows, content)
        except ImportError:
            self._drawable = False
            _logger.warning("curves.png is not drawn: it needs matplotlib: %s.", install("train"))
            return
        write_whole(self.folder / "curves.png", lambda file: file.write(content.getvalue()))


def _curves(rows: Sequence[dict[str, Any]], content: io.BytesIO) -> None:
    """Losses and accuracies of the summary by epoch, as a picture."""
    top1 = [float(row["eval_top1"]) for row in rows if "eval_top1" in row]
    after = f"{len(rows)} epoch{'s' * (len(rows) > 1)}"
    title = f"Training loss {rows[-1]['train_loss']:.3g} after {after}"
    if top1:
        title = f"After {after}: held-out top-1 {top1[-1]:.2f} %, {max(top1):.2f} % at best"
    with picture(content, title, across=2, height=4) as panels:
        for axes, suffix in zip(panels, ("loss", "top1"), strict=True):
            names = dict.fromkeys(n for row in rows for n in row if n.endswith(suffix))
            for name in names:
                points = [(row["epoch"], row[name]) for row in rows if name in row]
                label = name.removesuffix(f"_{suffix}")
                # the same in both panels
                style = look(("train", "eval", "eval_ema").index(label), 3) | {"markersize": 3}
                axes.plot(*zip(*points, strict=True), label=label, **style)
            axes.set(xlabel="epoch", ylabel=suffix if suffix == "loss" else "top-1 (%)")
            axes.xaxis.get_major_locator().set_params(integer=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _check_reports(config: TrainConfig) -> None:
    if config.log_tensorboard:
        _writer()
    if config.log_wandb:
        wandb = _package()
        with blamed_on(
            "--log-wandb cannot log in (WANDB_MODE=offline needs no login)", ConfigError
        ):
            wandb.login()


def _writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            f"--log-tensorboard needs the package tensorboard: {install('log')}."
        ) from error
    return SummaryWriter


def _package() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ConfigError(f"--log-wandb needs the package wandb: {install('log')}.") from error
    return wandb


def _wandb(config: TrainConfig, folder: Path) -> Any:
    """A run of theirs, or None: what a service refuses ends no training."""
    # A run that goes on in its folder goes on in its run there too.
    identity = folder / "wandb-run"
    known = identity.read_text(encoding="utf-8") if identity.is_file() else None
    try:
        run = _package().init(
            project=config.wandb_project,
            name=folder.name,
            dir=str(folder),
            tags=config.wandb_tags,
            config=asdict(config),
            id=config.wandb_resume_id or known,
            resume="must" if config.wandb_resume_id else "allow",
        )
    # A service and its client fail in any way: no network, no such run, another version.
    except Exception as error:
        _logger.warning(
            "Weights & Biases gets nothing of this run, which goes on without: %s", one_line(error)
        )
        return None
    write_whole(identity, lambda file: file.write(run.id.encode()))
    return run
