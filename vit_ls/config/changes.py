"""What may change where a run is continued: a resumed run is the same run."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from vit_ls.config.rules import ConfigError
from vit_ls.config.schema import TrainConfig

# How a run is started and where its files are, not what it is.
_OF_THE_START = {
    *("resume", "resume_changed", "no_resume_opt", "start_epoch", "output", "experiment"),
}

# What may change at any time, and takes effect from there on.
MAY_CHANGE = {
    # how long, and the rate: a function of the epoch
    *("epochs", "stop_epoch", "sched", "sched_on_updates", "lr", "lr_base", "lr_base_size"),
    *("lr_base_scale", "lr_noise", "lr_noise_pct", "lr_noise_std", "lr_cycle_mul"),
    *("lr_cycle_decay", "lr_cycle_limit", "lr_k_decay", "warmup_lr", "min_lr", "warmup_epochs"),
    *("warmup_prefix", "cooldown_epochs", "patience_epochs", "decay_epochs", "decay_milestones"),
    *("decay_rate", "lr_decay_fn", "lr_stable_timescale", "weight_decay"),
    # what is kept and shown, and when
    *("recovery_interval", "checkpoint_hist", "save_epochs", "val_interval", "save_images"),
    *("log_interval", "log_tensorboard", "log_wandb", "wandb_project", "wandb_tags"),
    *("wandb_resume_id", "log_grad_norm", "profile"),
    # how it is computed, but for rounding; the data may have moved
    "data_dir",
    *("workers", "pin_mem", "validation_batch_size", "device", "dist_timeout", "torchcompile"),
    *(
        "device_modules",
        "cudnn_benchmark",
        "torchcompile_mode",
        "channels_last",
        "grad_checkpointing",
        "dataset_download",
    ),
    *("dataset_trust_remote_code", "max_unreadable", "skip_nonfinite"),
}

# What cannot take effect in a run that has begun, even where changes are allowed.
_WEIGHTS = "the weights are those of the checkpoint"
NEVER = {
    "model": "the weights are of the other one",
    "pretrained": _WEIGHTS,
    "pretrained_path": _WEIGHTS,
    "initial_checkpoint": _WEIGHTS,
    "head_init_scale": _WEIGHTS,
    "head_init_bias": _WEIGHTS,
    "eval_metric": "the checkpoints kept so far were ranked by the other one",
}


class Change(NamedTuple):
    """A setting that differs from that of the run so far."""

    name: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"--{self.name.replace('_', '-')} {self.was!r} -> {self.now!r}"


def checked_changes(was: Mapping[str, Any], now: TrainConfig) -> list[Change]:
    """What has changed since a run was saved.

    Args:
        was: The settings stored with it; one that it does not know yet had its default.
        now: The settings to continue it with.

    Raises:
        ConfigError: Something has changed that makes it another run and is not allowed to.
    """
    changes = _changes(was, now)
    for one in changes:
        why = NEVER.get(one.name)
        if one.name == "opt" and not now.no_resume_opt:
            why = "the optimiser's state is of the other one (--no-resume-opt starts it anew)"
        if why is not None:
            raise ConfigError(f"--resume: {one} cannot change in a run: {why}.")
    other = [str(one) for one in changes if one.name not in MAY_CHANGE]
    if other and not now.resume_changed:
        raise ConfigError(
            f"--resume: {', '.join(other)} would make it another run; --resume-changed allows that."
        )
    return changes


def former(was: Mapping[str, Any], schema: type[TrainConfig] = TrainConfig) -> TrainConfig:
    """The configuration of a stored run, as far as `schema` knows it."""
    known = {one.name for one in fields(schema)}
    return schema(**{name: value for name, value in was.items() if name in known})


def _changes(was: Mapping[str, Any], now: TrainConfig) -> list[Change]:
    before, after = asdict(former(was, type(now))), asdict(now)
    return [
        Change(name, before[name], value)
        for name, value in after.items()
        if name not in _OF_THE_START and before[name] != value
    ]
