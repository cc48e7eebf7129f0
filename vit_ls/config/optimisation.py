# ruff: noqa: RUF009 - setting makes dataclass fields
"""How weights are trained: optimiser, schedule, regularisation, average, teacher."""

from dataclasses import dataclass
from typing import Any

from vit_ls.config.rows import (
    ABOVE_0,
    BELOW_1,
    FREE,
    NOT_BELOW_0,
    SHARE,
    START,
    Needs,
    Rule,
    setting,
)

_SCHEDULES = (
    *("cosine", "tanh", "step", "multistep", "poly", "wsd", "rsqrt", "plateau", "constant"),
    "none",
)
_CYCLIC = ("cosine", "tanh", "poly")
_DECAYS = ("linear", "1-sqrt", "cosine", "power", "exp")
_LAYER_DECAY = Needs(lambda c: c.layer_decay is not None, "--layer-decay")
_CLIPPING = Needs(lambda c: c.clip_grad is not None, "--clip-grad")
_NO_LR = Needs(lambda c: c.lr is None, "no --lr")
_NOISE = Needs(lambda c: c.lr_noise is not None, "--lr-noise")
_WARMUP = Needs(lambda c: c.warmup_epochs > 0, "--warmup-epochs")
_CYCLES = Needs(lambda c: c.lr_cycle_limit > 1, "--lr-cycle-limit")
_ANY_SCHEDULE = Needs(lambda c: c.sched != "none", "a --sched other than none")
_AVERAGE = Needs(lambda c: c.model_ema, "--model-ema")
_TEACHER = Needs(lambda c: bool(c.kd_model_name), "--kd-model-name")
_LOGITS = Needs(
    lambda c: bool(c.kd_model_name) and c.kd_distill_type != "feature",
    "--kd-model-name and --kd-distill-type logit or token",
)
_TOKENS = Needs(
    lambda c: bool(c.kd_model_name) and c.kd_distill_type == "token",
    "--kd-model-name and --kd-distill-type token",
)
_FEATURES = Needs(
    lambda c: bool(c.kd_model_name) and c.kd_distill_type == "feature",
    "--kd-model-name and --kd-distill-type feature",
)


def _of(*schedules: str) -> Needs:
    return Needs(lambda c: c.sched in schedules, f"--sched {' or '.join(schedules)}")


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """Optimiser."""

    opt: str = setting("sgd", "optimiser, by timm's name", sequence=True, known_as="optimizer")
    weight_decay: float = setting(
        2e-05, "weight decay", NOT_BELOW_0, resume=FREE, sequence=True, known_as="wd"
    )
    momentum: float = setting(0.9, "momentum", BELOW_1, sequence=True)
    opt_betas: list[float] | None = setting(None, "betas", BELOW_1, sequence=True)
    opt_eps: float | None = setting(None, "epsilon", ABOVE_0, sequence=True)
    opt_kwargs: dict[str, Any] = setting(
        {}, "more arguments of the optimiser, KEY=VALUE ...", sequence=True
    )
    clip_grad: float | None = setting(
        None, "clip the gradient", ABOVE_0, sequence=True, known_as="max_grad_norm"
    )
    clip_mode: str = setting(
        "norm",
        "how to clip",
        Rule(choices=("norm", "value", "agc")),
        needs=(_CLIPPING,),
        sequence=True,
    )
    layer_decay: float | None = setting(
        None, "rate of a layer over the next's", Rule(above=0, most=1)
    )
    layer_decay_min_scale: float = setting(
        0.0, "lower bound of that factor", SHARE, needs=(_LAYER_DECAY,)
    )
    layer_decay_no_opt_scale: float | None = setting(
        None, "freeze layers whose factor is less", SHARE, needs=(_LAYER_DECAY,)
    )


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of the learning rate."""

    epochs: int = setting(
        300, "epochs", ABOVE_0, resume=FREE, sequence=True, known_as="max_epochs num_epochs"
    )
    stop_epoch: int | None = setting(
        None, "stop after so many epochs of the schedule", resume=FREE, sequence=True
    )
    sched: str = setting(
        "cosine",
        "learning rate schedule",
        Rule(choices=_SCHEDULES),
        resume=FREE,
        sequence=True,
        known_as="lr_scheduler scheduler",
    )
    lr: float | None = setting(
        None,
        "peak rate; default: lr_base scaled by the batch",
        ABOVE_0,
        resume=FREE,
        sequence=True,
        known_as="learning_rate",
    )
    lr_base: float = setting(
        0.1, "rate at a batch of lr_base_size", ABOVE_0, needs=(_NO_LR,), resume=FREE
    )
    lr_base_size: int = setting(256, "see lr_base", ABOVE_0, needs=(_NO_LR,), resume=FREE)
    lr_base_scale: str = setting(
        "",
        "default: by optimiser",
        Rule(choices=("", "linear", "sqrt")),
        needs=(_NO_LR,),
        resume=FREE,
    )
    min_lr: float = setting(
        0.0,
        "rate at the end",
        NOT_BELOW_0,
        needs=(_of(*_CYCLIC, "wsd", "rsqrt", "plateau"),),
        resume=FREE,
        sequence=True,
    )
    warmup_epochs: int = setting(
        5, "epochs of warm-up", NOT_BELOW_0, needs=(_ANY_SCHEDULE,), resume=FREE, sequence=True
    )
    warmup_lr: float = setting(
        1e-05, "rate at the start", NOT_BELOW_0, needs=(_WARMUP,), resume=FREE, sequence=True
    )
    warmup_prefix: bool = setting(
        False, "do not count the warm-up in epochs", needs=(_WARMUP,), resume=FREE, sequence=True
    )
    cooldown_epochs: int = setting(
        0, "epochs at min_lr after the schedule", NOT_BELOW_0, resume=FREE, sequence=True
    )
    sched_on_updates: bool = setting(
        False,
        "step the schedule after each update, not each epoch",
        needs=(_ANY_SCHEDULE,),
        resume=FREE,
        sequence=True,
    )
    start_epoch: int | None = setting(
        None, "enter the schedule at this epoch", NOT_BELOW_0, resume=START
    )
    epoch_repeats: float = setting(0.0, "repeats of a streamed data set per epoch", NOT_BELOW_0)
    decay_rate: float = setting(
        0.1,
        "factor per decay",
        ABOVE_0,
        also="--dr",
        needs=(_of("step", "multistep", "plateau", "poly"),),
        resume=FREE,
        sequence=True,
    )
    decay_epochs: float | None = setting(
        None,
        "epochs between decays",
        ABOVE_0,
        needs=(_of("step", "wsd", "rsqrt"),),
        resume=FREE,
        sequence=True,
    )
    decay_milestones: list[int] = setting(
        [90, 180, 270],
        "epochs of the multistep schedule",
        ABOVE_0,
        needs=(_of("multistep"),),
        resume=FREE,
        sequence=True,
    )
    patience_epochs: int = setting(
        10,
        "epochs without progress before plateau decays",
        NOT_BELOW_0,
        needs=(_of("plateau"),),
        resume=FREE,
    )
    lr_noise: list[float] | None = setting(
        None,
        "noise on the rate: on and off",
        Rule(lengths=(1, 2), least=0, most=1),
        needs=(_ANY_SCHEDULE,),
        resume=FREE,
    )
    lr_noise_pct: float = setting(0.67, "limit of the noise", SHARE, needs=(_NOISE,), resume=FREE)
    lr_noise_std: float = setting(
        1.0, "standard deviation of the noise", NOT_BELOW_0, needs=(_NOISE,), resume=FREE
    )
    lr_cycle_mul: float = setting(
        1.0,
        "factor of the cycle length",
        ABOVE_0,
        needs=(
            _CYCLES,
            _of(*_CYCLIC),
        ),
        resume=FREE,
    )
    lr_cycle_decay: float = setting(
        0.5,
        "factor of the rate per cycle",
        ABOVE_0,
        needs=(
            _CYCLES,
            _of(*_CYCLIC),
        ),
        resume=FREE,
    )
    lr_cycle_limit: int = setting(1, "cycles", ABOVE_0, needs=(_of(*_CYCLIC),), resume=FREE)
    lr_k_decay: float = setting(
        1.0,
        "k-decay of cosine and poly",
        ABOVE_0,
        needs=(_of("cosine", "poly"),),
        resume=FREE,
        sequence=True,
    )
    lr_decay_fn: str | None = setting(
        None,
        "shape of the decay of wsd and rsqrt",
        Rule(choices=_DECAYS),
        needs=(_of("wsd", "rsqrt"),),
        resume=FREE,
    )
    lr_stable_timescale: float | None = setting(
        None, "time scale of rsqrt in epochs", ABOVE_0, needs=(_of("rsqrt"),), resume=FREE
    )


@dataclass(frozen=True, kw_only=True)
class Regularisation:
    """Regularisation and batch norm."""

    drop: float | None = setting(None, "dropout", BELOW_1, sequence=True, known_as="dropout")
    drop_path: float | None = setting(
        None, "stochastic depth", BELOW_1, known_as="stochastic_depth"
    )
    drop_block: float | None = setting(None, "drop block", BELOW_1)
    bn_momentum: float | None = setting(None, "batch norm momentum", Rule(above=0, most=1))
    bn_eps: float | None = setting(None, "batch norm epsilon", ABOVE_0)
    sync_bn: bool = setting(False, "batch norm over all processes")
    dist_bn: str = setting(
        "reduce", "share its statistics", Rule(choices=("", "broadcast", "reduce"))
    )
    no_ddp_bb: bool = setting(False, "do not broadcast buffers before each forward")
    split_bn: bool = setting(
        False, "batch norm for each of them (also for each half with --resplit)"
    )


@dataclass(frozen=True, kw_only=True)
class Average:
    """Average of the weights (EMA)."""

    model_ema: bool = setting(
        False, "keep an average of the weights", sequence=True, known_as="ema"
    )
    model_ema_decay: float = setting(
        0.9998, "its decay", SHARE, needs=(_AVERAGE,), sequence=True, known_as="ema_decay"
    )
    model_ema_warmup: bool = setting(
        True, "let the decay grow from 0 (timm: off)", needs=(_AVERAGE,), sequence=True
    )
    model_ema_force_cpu: bool = setting(
        False, "keep it on the CPU, and do not evaluate it", needs=(_AVERAGE,)
    )


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Distillation from a teacher."""

    kd_model_name: str | None = setting(None, "teacher", known_as="teacher")
    kd_model_path: str | None = setting(
        None, "its weights; default: the published ones", needs=(_TEACHER,)
    )
    kd_distill_type: str = setting(
        "logit", "what is matched", Rule(choices=("logit", "feature", "token")), needs=(_TEACHER,)
    )
    kd_loss_type: str = setting("kl", "loss of logit distillation", Rule(choices=("kl",)))
    kd_student_feature_dim: int | None = setting(
        None, "width of its features", ABOVE_0, needs=(_FEATURES,)
    )
    kd_teacher_feature_dim: int | None = setting(
        None, "width of the teacher's", ABOVE_0, needs=(_FEATURES,)
    )
    kd_token_distill_type: str = setting(
        "hard", "of token distillation", Rule(choices=("soft", "hard")), needs=(_TOKENS,)
    )
    kd_temperature: float = setting(4.0, "temperature", ABOVE_0, needs=(_LOGITS,))
    distill_loss_weight: float | None = setting(
        None, "weight of the teacher's loss", NOT_BELOW_0, needs=(_TEACHER,)
    )
    task_loss_weight: float | None = setting(
        None, "weight of the labels' loss", NOT_BELOW_0, needs=(_TEACHER,)
    )
