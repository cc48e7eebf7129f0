# ruff: noqa: RUF009 - setting makes dataclass fields
"""What train.py can be told, and what of it contradicts itself."""

from dataclasses import dataclass
from pathlib import Path

from vit_ls.config.augmentation import Augmentation, Losses
from vit_ls.config.optimisation import Average, Distillation, Optimiser, Regularisation, Schedule
from vit_ls.config.rows import (
    ABOVE_0,
    FREE,
    NOT_BELOW_0,
    START,
    ConfigError,
    Needs,
    Never,
    Rule,
    setting,
)
from vit_ls.config.shared import FROM_CHECKPOINT, DataConfig

_WANDB = Needs(lambda c: c.log_wandb, "--log-wandb")


@dataclass(frozen=True, kw_only=True)
class _Splits:
    """Splits."""

    train_split: str = setting("train", "split to train on; '' is the whole folder or tar")
    val_split: str = setting("validation", "split to evaluate on; '' evaluates nothing")
    train_num_samples: int | None = setting(
        None, "images in it, if the reader cannot tell", ABOVE_0
    )
    val_num_samples: int | None = setting(None, "images in it, if the reader cannot tell", ABOVE_0)
    validation_batch_size: int | None = setting(
        None, "default: batch_size", ABOVE_0, also="-vb", resume=FREE, sequence=True
    )


@dataclass(frozen=True, kw_only=True)
class _Start:
    """Start and steps."""

    initial_checkpoint: str = setting(
        "", "start from these weights, strictly", resume=FROM_CHECKPOINT, sequence=True
    )
    freeze: str | None = setting(
        None,
        "all but the classifier (backbone), or but what --replace-attention added (original)",
        Rule(choices=("backbone", "original")),
    )
    head_init_scale: float | None = setting(
        None, "factor of the classifier's first values", NOT_BELOW_0, resume=FROM_CHECKPOINT
    )
    head_init_bias: float | None = setting(
        None, "first value of the classifier's bias", resume=FROM_CHECKPOINT
    )
    grad_accum_steps: int = setting(
        1,
        "batches per optimiser step",
        ABOVE_0,
        sequence=True,
        known_as="accumulation_steps gradient_accumulation_steps",
    )
    grad_checkpointing: bool = setting(
        False,
        "recompute activations in the backward pass",
        resume=FREE,
        known_as="gradient_checkpointing",
    )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Run: folder, resuming, checkpoints, logs."""

    output: str = setting(
        "output",
        "folder of the runs",
        resume=START,
        sequence=True,
        timm_unset="",
        known_as="out_dir output_dir save_dir",
    )
    experiment: str = setting(
        "",
        "name of the run's folder; default: a new one from time and model",
        resume=START,
        sequence=True,
        known_as="name run_name",
    )
    resume: str = setting(
        "",
        "continue from this file; 'auto': from the newest good one of the run",
        resume=START,
        sequence=True,
    )
    resume_changed: bool = setting(
        False, "let --resume change settings that make it another run", resume=START, sequence=True
    )
    no_resume_opt: bool = setting(
        False, "start the optimiser anew where --resume FILE continues", resume=START, sequence=True
    )
    seed: int = setting(42, "of everything random", Rule(least=0, most=2**31 - 1), sequence=True)
    val_interval: int = setting(
        1, "epochs between evaluations", ABOVE_0, resume=FREE, sequence=True
    )
    eval_metric: str = setting(
        "top1",
        "decides what is best",
        Rule(choices=("top1", "top5", "loss")),
        resume=Never("the checkpoints kept so far were ranked by the other one"),
        sequence=True,
    )
    checkpoint_hist: int = setting(
        10, "best checkpoints to keep", ABOVE_0, resume=FREE, sequence=True
    )
    save_epochs: list[int] | None = setting(
        None, "keep a milestone after so many epochs", ABOVE_0, resume=FREE, sequence=True
    )
    recovery_interval: int = setting(
        0, "updates between recovery checkpoints", NOT_BELOW_0, resume=FREE, sequence=True
    )
    skip_nonfinite: int = setting(
        0,
        "updates with a non-finite loss to skip before stopping",
        NOT_BELOW_0,
        resume=FREE,
        sequence=True,
    )
    log_grad_norm: bool = setting(
        False,
        "log the norm of the gradient where it is not clipped by it",
        resume=FREE,
        sequence=True,
    )
    profile: int = setting(
        0, "trace so many updates with torch's profiler, after ten", NOT_BELOW_0, resume=FREE
    )
    estimate: int | None = setting(
        None,
        "print what the run would cost on so many GPUs (alone: 1), and end",
        ABOVE_0,
        alone=1,
        resume=START,
    )
    save_images: bool = setting(
        False, "write a batch of training images at each log interval", resume=FREE
    )
    log_tensorboard: bool = setting(False, "write TensorBoard events", resume=FREE)
    log_wandb: bool = setting(False, "log to Weights & Biases", resume=FREE)
    wandb_project: str | None = setting(None, "project there", needs=(_WANDB,), resume=FREE)
    wandb_tags: list[str] | None = setting(None, "tags there", needs=(_WANDB,), resume=FREE)
    wandb_resume_id: str = setting(
        "",
        "run to go on with there; default: that of the run's folder",
        needs=(_WANDB,),
        resume=FREE,
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    Distillation,
    Average,
    Regularisation,
    Losses,
    Augmentation,
    Schedule,
    Optimiser,
    _Start,
    _Run,
    _Splits,
    DataConfig,
):
    """What train.py can be told."""

    def check(self) -> None:
        """Raise ConfigError where settings contradict one another."""
        for broken, message in (
            (
                self.stop_epoch is not None and not 1 <= self.stop_epoch <= self.epochs,
                f"--stop-epoch must lie in 1 to --epochs, got {self.stop_epoch} of {self.epochs}.",
            ),
            (
                self.mixes and self.batch_size % 2 == 1,
                f"--batch-size must be even with mixup or cutmix, got {self.batch_size}.",
            ),
            *self._broken_splits(),
            *self._broken_images(),
            (
                self.scale[0] > self.scale[1] or self.ratio[0] > self.ratio[1],
                f"--scale and --ratio must be lower, upper; got {self.scale}, {self.ratio}.",
            ),
            (
                Path(self.experiment).name != self.experiment
                or self.experiment == ".."
                or "\0" in self.experiment,
                f"--experiment must be the plain name of a folder, got {self.experiment!r}.",
            ),
            (
                bool(self.initial_checkpoint) and bool(self.pretrained or self.pretrained_path),
                f"--initial-checkpoint cannot go with "
                f"--pretrained{'-path' if self.pretrained_path else ''}: a run has one start.",
            ),
            (
                self.resume == "auto" and not self.experiment,
                "--resume auto needs --experiment NAME: it continues the run of that folder.",
            ),
            (
                self.resume == "auto" and (self.no_resume_opt or self.start_epoch is not None),
                "--no-resume-opt and --start-epoch need --resume FILE: with auto, each restart "
                "would do it again.",
            ),
            (
                self.no_resume_opt and not self.resume,
                "--no-resume-opt needs --resume FILE.",
            ),
            (
                self.estimate is not None and bool(self.resume),
                "--estimate is of a whole run, so it cannot go with --resume.",
            ),
            (
                self.resume_changed and not self.resume,
                "--resume-changed needs --resume.",
            ),
        ):
            if broken:
                raise ConfigError(message)

    def _broken_images(self) -> list[tuple[bool, str]]:
        crops = self.train_crop_mode in (None, "rrc") and not self.no_aug
        mixed = self.cutmix_minmax or [0.0, 1.0]
        return [
            (
                crops and self.scale[1] > 1,
                f"--scale is a share of the image's area, at most 1; got {self.scale}.",
            ),
            (
                self.reduced_decoding and not crops,
                "--reduced-decoding needs the random resized crop: neither --no-aug nor "
                "--train-crop-mode rkrc or rkrr.",
            ),
            (
                mixed[0] > mixed[1],
                f"--cutmix-minmax must be lower, upper; got {self.cutmix_minmax}.",
            ),
            (
                self.sched == "plateau" and not self.val_split,
                "--sched plateau needs an evaluation, got --val-split ''.",
            ),
        ]

    def _broken_splits(self) -> list[tuple[bool, str]]:
        splits, several = self.aug_splits, self.aug_splits > 1
        return [
            (splits == 1, "--aug-splits must be 0 or at least 2, got 1."),
            (several and self.mixes, f"--aug-splits excludes mixup and cutmix, got {splits}."),
            (self.jsd_loss and not several, f"--jsd-loss needs --aug-splits >= 2, got {splits}."),
            (self.jsd_loss and self.bce_loss, "--jsd-loss cannot go with --bce-loss."),
            (
                self.split_bn and not (several or self.resplit),
                f"--split-bn needs --aug-splits >= 2 or --resplit, got {splits} without.",
            ),
            (self.split_bn and self.sync_bn, "--split-bn cannot go with --sync-bn."),
            (
                self.split_bn and not several and self.batch_size % 2 == 1,
                f"--batch-size must be even with --split-bn, got {self.batch_size}.",
            ),
        ]
