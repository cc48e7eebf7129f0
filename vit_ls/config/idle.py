"""Settings that do nothing beside others: timm's scripts pass them over without a word."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from vit_ls.config.schema import TrainConfig


class Needs(NamedTuple):
    """What some settings need in order to act.

    Attributes:
        names: The settings.
        met: Whether it is so.
        what: The same in words.
    """

    names: tuple[str, ...]
    met: Callable[[TrainConfig], bool]
    what: str


def _of_schedule(name: str, *schedules: str) -> Needs:
    return Needs((name,), lambda c: c.sched in schedules, f"--sched {' or '.join(schedules)}")


_CYCLIC = ("cosine", "tanh", "poly")
NEEDS = (
    Needs(
        ("mixup_prob", "mixup_mode", "mixup_off_epoch"), lambda c: c.mixes, "--mixup or --cutmix"
    ),
    Needs(
        ("mixup_switch_prob",),
        lambda c: c.mixup > 0 and (c.cutmix > 0 or c.cutmix_minmax is not None),
        "--mixup and --cutmix",
    ),
    Needs(("bce_sum", "bce_target_thresh", "bce_pos_weight"), lambda c: c.bce_loss, "--bce-loss"),
    Needs(
        (
            *(
                "train_crop_mode",
                "scale",
                "ratio",
                "hflip",
                "vflip",
                "color_jitter",
                "reprob",
                "aa",
            ),
            *("color_jitter_prob", "grayscale_prob", "gaussian_blur_prob", "train_interpolation"),
        ),
        lambda c: not c.no_aug,
        "augmentation, which --no-aug turns off",
    ),
    Needs(
        ("color_jitter", "color_jitter_prob"),
        lambda c: not c.aa or "3a" in c.aa,
        "no --aa, or one of 3-Augment ('3a')",
    ),
    Needs(("color_jitter_prob",), lambda c: c.color_jitter > 0, "a --color-jitter above 0"),
    Needs(
        ("color_jitter",),
        lambda c: c.color_jitter_prob != 0 or c.color_jitter == 0,
        "a --color-jitter-prob above 0",
    ),
    Needs(("remode", "recount"), lambda c: c.reprob > 0, "--reprob"),
    Needs(("resplit",), lambda c: c.reprob > 0 or c.split_bn, "--reprob or --split-bn"),
    Needs(
        ("model_ema_decay", "model_ema_warmup", "model_ema_force_cpu"),
        lambda c: c.model_ema,
        "--model-ema",
    ),
    Needs(
        ("kd_model_path", "kd_distill_type", "distill_loss_weight", "task_loss_weight"),
        lambda c: bool(c.kd_model_name),
        "--kd-model-name",
    ),
    Needs(
        ("kd_temperature",),
        lambda c: bool(c.kd_model_name) and c.kd_distill_type != "feature",
        "--kd-model-name and --kd-distill-type logit or token",
    ),
    Needs(
        ("kd_token_distill_type",),
        lambda c: bool(c.kd_model_name) and c.kd_distill_type == "token",
        "--kd-model-name and --kd-distill-type token",
    ),
    Needs(
        ("kd_student_feature_dim", "kd_teacher_feature_dim"),
        lambda c: bool(c.kd_model_name) and c.kd_distill_type == "feature",
        "--kd-model-name and --kd-distill-type feature",
    ),
    Needs(
        ("layer_decay_min_scale", "layer_decay_no_opt_scale"),
        lambda c: c.layer_decay is not None,
        "--layer-decay",
    ),
    Needs(("clip_mode",), lambda c: c.clip_grad is not None, "--clip-grad"),
    Needs(("lr_base", "lr_base_size", "lr_base_scale"), lambda c: c.lr is None, "no --lr"),
    Needs(("lr_noise_pct", "lr_noise_std"), lambda c: c.lr_noise is not None, "--lr-noise"),
    Needs(("warmup_lr", "warmup_prefix"), lambda c: c.warmup_epochs > 0, "--warmup-epochs"),
    Needs(("lr_cycle_mul", "lr_cycle_decay"), lambda c: c.lr_cycle_limit > 1, "--lr-cycle-limit"),
    Needs(
        ("lr_noise", "warmup_epochs", "sched_on_updates"),
        lambda c: c.sched != "none",
        "a --sched other than none",
    ),
    *(_of_schedule(name, *_CYCLIC) for name in ("lr_cycle_limit", "lr_cycle_mul")),
    _of_schedule("lr_cycle_decay", *_CYCLIC),
    _of_schedule("lr_k_decay", "cosine", "poly"),
    _of_schedule("min_lr", *_CYCLIC, "wsd", "rsqrt", "plateau"),
    _of_schedule("decay_rate", "step", "multistep", "plateau", "poly"),
    _of_schedule("decay_epochs", "step", "wsd", "rsqrt"),
    _of_schedule("decay_milestones", "multistep"),
    _of_schedule("patience_epochs", "plateau"),
    _of_schedule("lr_decay_fn", "wsd", "rsqrt"),
    _of_schedule("lr_stable_timescale", "rsqrt"),
    Needs(("wandb_project", "wandb_tags", "wandb_resume_id"), lambda c: c.log_wandb, "--log-wandb"),
    Needs(("torchcompile_mode",), lambda c: c.torchcompile is not None, "--torchcompile"),
    Needs(("amp_dtype",), lambda c: c.amp is not False, "--amp"),
)


def idle(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """The settings that are not at their defaults and do nothing, and what each would need."""
    plain = TrainConfig()
    told = set()
    for needs in NEEDS:
        for name in needs.names:
            changed = getattr(config, name) != getattr(plain, name)
            if changed and name not in told and not needs.met(config):
                told.add(name)
                yield name, needs.what
