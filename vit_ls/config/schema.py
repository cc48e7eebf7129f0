# ruff: noqa: RUF009 - _f makes dataclass fields
"""What train.py and validate.py can be told: names, types, defaults and rules.

Names, meaning and defaults are those of timm's scripts, so that its users can bring their command
lines; where a default differs, the help text says so.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit_ls.config.rules import ConfigError, Rule
from vit_ls.config.rules import setting as _f

_RATE = Rule(least=0, below=1)
_SHARE = Rule(least=0, most=1)
_COUNT = Rule(least=0)
_POSITIVE = Rule(above=0)
_PAIR = Rule(above=0, lengths=(2,))
_SCHEDULES = (
    "cosine",
    "tanh",
    "step",
    "multistep",
    "poly",
    "wsd",
    "rsqrt",
    "plateau",
    "constant",
    "none",
)
_DECAYS = ("linear", "1-sqrt", "cosine", "power", "exp")
_CROPS = ("center", "squash", "border")
_RESAMPLING = ("nearest", "bilinear", "bicubic", "lanczos")

WEIGHTS = ("best", "ema", "raw")
"""Of a checkpoint: what the run scored best with, the average, or the weights themselves."""
WEIGHTS_HELP = "of the checkpoint: best (what its run scored best with), ema (the average) or raw"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What training and validation share: the data, the model, the device."""

    data_dir: str = _f("", "folder or tar of the images; without it and --dataset: the digits")
    dataset: str = _f(
        "", "kind: '' (folder, tar), digits, torch/, hfds/, wds/, tfds/ NAME", also="-d"
    )
    dataset_download: bool = _f(False, "let torch/ and tfds/ datasets download")
    dataset_trust_remote_code: bool = _f(False, "let a Hugging Face dataset run its own code")
    class_map: str = _f("", "file that maps class names to indices")
    input_img_mode: str | None = _f(None, "default: L for 1 channel", Rule(choices=("RGB", "L")))
    input_key: str | None = _f(None, "key of the images in wds/ and hfds/ datasets")
    target_key: str | None = _f(None, "key of the labels in wds/ and hfds/ datasets")
    model: str = _f("resnet50", "any model that timm knows", also="-m")
    pretrained: bool = _f(False, "start from the published weights")
    pretrained_path: str | None = _f(None, "start from this file as if it were the published one")
    pretrained_cfg_overlay: dict[str, Any] = _f({}, "changes to the model's pretrained config")
    num_classes: int | None = _f(None, "default: as many as the data has", _POSITIVE)
    gp: str | None = _f(None, "global pooling; default: the model's")
    img_size: int | None = _f(None, "side of the square input; default: the model's", _POSITIVE)
    in_chans: int | None = _f(None, "input channels; default: the model's", _POSITIVE)
    input_size: list[int] | None = _f(None, "channels, height, width", Rule(above=0, lengths=(3,)))
    crop_pct: float | None = _f(
        None, "share of the centre crop in evaluation", Rule(least=0.05, most=1)
    )
    crop_mode: str | None = _f(None, "crop in evaluation", Rule(choices=_CROPS))
    mean: list[float] | None = _f(None, "mean of the normalisation", Rule(lengths=(1, 3)))
    std: list[float] | None = _f(None, "std of the normalisation", Rule(above=0, lengths=(1, 3)))
    interpolation: str = _f("", "resampling", Rule(choices=("", *_RESAMPLING)))
    batch_size: int = _f(128, "images per process and step", _POSITIVE, also="-b")
    workers: int = _f(4, "loading processes per process", Rule(least=0, most=1024), also="-j")
    max_unreadable: int = _f(10, "images of a split that may be unreadable", _COUNT)
    pin_mem: bool = _f(False, "pin the batches' memory")
    model_kwargs: dict[str, Any] = _f({}, "more arguments of the model, KEY=VALUE ...")
    channels_last: bool = _f(False, "channels-last memory layout")
    device: str = _f("auto", "auto (timm: cuda) takes the GPU where there is one")
    amp: bool | None = _f(
        None, "mixed precision; default: on a GPU (timm: off)", also="--native-amp"
    )
    amp_dtype: str = _f(
        "bfloat16", "of mixed precision (timm: float16)", Rule(choices=("bfloat16", "float16"))
    )
    torchcompile: str | None = _f(
        None, "torch.compile, with this backend (alone: inductor)", alone="inductor"
    )
    torchcompile_mode: str | None = _f(None, "mode of torch.compile")
    float32_matmul_precision: str | None = _f(
        None,
        "of float32 products; default: high, which is TF32, on a GPU",
        Rule(choices=("highest", "high", "medium")),
        short={"--tf32": "high", "--no-tf32": "highest"},
    )
    cudnn_benchmark: bool = _f(True, "let cuDNN time its convolutions and take the fastest")
    device_modules: list[str] | None = _f(None, "Python modules that bring the device's backend")
    dist_timeout: float = _f(600.0, "seconds until a lost rank ends the job", _POSITIVE)
    fast_norm: bool = _f(False, "timm's norms in the precision of autocast, not in float32")
    log_interval: int = _f(50, "updates between two log lines", _POSITIVE, also="--log-freq")

    @property
    def weights_asked(self) -> str:
        """Which weights of a file are asked for, one of `WEIGHTS`."""
        return "best"


@dataclass(frozen=True, kw_only=True)
class ValidateConfig(DataConfig):
    """What validate.py can be told. What is not set is taken from the checkpoint's own run."""

    split: str = _f("validation", "split of the data set; '' is the whole folder or tar")
    num_samples: int | None = _f(None, "images in it, if the reader cannot tell", _POSITIVE)
    checkpoint: str = _f("", "file with the weights")
    weights: str | None = _f(None, f"{WEIGHTS_HELP}; default: best", Rule(choices=WEIGHTS))
    use_ema: bool | None = _f(None, "the same as --weights ema; --no-use-ema: --weights raw")
    random_weights: bool = _f(False, "evaluate a model that has no weights but random ones")
    seed: int = _f(42, "of the random weights", Rule(least=0, most=2**31 - 1))
    use_train_size: bool = _f(False, "the training size, where the model has another for tests")
    real_labels: str | None = _f(None, "ReaL labels: a JSON file, or 'builtin'")
    per_class: str = _f("", "write the accuracy of each class to this CSV file")
    results_file: str = _f("", "append the result to this CSV file")

    @property
    def weights_asked(self) -> str:
        """Which weights of a file are asked for, one of `WEIGHTS`."""
        by_timms_name = {True: "ema", False: "raw", None: "best"}[self.use_ema]
        return self.weights or by_timms_name

    def check(self) -> None:
        """Raise ConfigError where the settings name no weights, or contradict one another."""
        weights = self.checkpoint or self.pretrained or self.pretrained_path
        file = self.checkpoint or self.pretrained_path
        asked = {True: "--use-ema", False: "--no-use-ema", None: "--weights"}[self.use_ema]
        for broken, message in (
            (
                not weights and not self.random_weights,
                "--checkpoint FILE, --pretrained or --pretrained-path FILE must say which weights "
                "to evaluate (--random-weights: none).",
            ),
            (
                bool(weights) and self.random_weights,
                "--random-weights cannot go with other weights.",
            ),
            (
                bool(self.checkpoint) and bool(self.pretrained or self.pretrained_path),
                "--checkpoint cannot go with --pretrained or --pretrained-path: they are other "
                "weights.",
            ),
            (
                (self.use_ema is not None or self.weights is not None) and not file,
                f"{asked} needs --checkpoint FILE.",
            ),
            (
                self.use_ema is not None
                and self.weights not in (None, "ema" if self.use_ema else "raw"),
                f"{asked} contradicts --weights {self.weights}.",
            ),
        ):
            if broken:
                raise ConfigError(message)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(DataConfig):
    """What train.py can be told."""

    # data
    train_split: str = _f("train", "split to train on; '' is the whole folder or tar")
    val_split: str = _f("validation", "split to evaluate on; '' evaluates nothing")
    train_num_samples: int | None = _f(None, "images in it, if the reader cannot tell", _POSITIVE)
    val_num_samples: int | None = _f(None, "images in it, if the reader cannot tell", _POSITIVE)
    # model
    initial_checkpoint: str = _f("", "start from these weights, strictly")
    freeze: str | None = _f(None, "train the classifier alone", Rule(choices=("backbone",)))
    validation_batch_size: int | None = _f(None, "default: batch_size", _POSITIVE, also="-vb")
    grad_accum_steps: int = _f(1, "batches per optimiser step", _POSITIVE)
    grad_checkpointing: bool = _f(False, "recompute activations in the backward pass")
    head_init_scale: float | None = _f(None, "factor of the classifier's first values", _COUNT)
    head_init_bias: float | None = _f(None, "first value of the classifier's bias")
    # run
    resume: str = _f("", "continue from this file; 'auto': from the newest good one of the run")
    no_resume_opt: bool = _f(False, "start the optimiser anew where --resume FILE continues")
    resume_changed: bool = _f(False, "let --resume change settings that make it another run")
    output: str = _f("output", "folder of the runs")
    experiment: str = _f("", "name of the run's folder; default: a new one from time and model")
    # optimiser
    opt: str = _f("sgd", "optimiser, by timm's name")
    opt_eps: float | None = _f(None, "epsilon", _POSITIVE)
    opt_betas: list[float] | None = _f(None, "betas", _RATE)
    momentum: float = _f(0.9, "momentum", _RATE)
    weight_decay: float = _f(2e-5, "weight decay", _COUNT)
    clip_grad: float | None = _f(None, "clip the gradient", _POSITIVE)
    clip_mode: str = _f("norm", "how to clip", Rule(choices=("norm", "value", "agc")))
    log_grad_norm: bool = _f(False, "log the norm of the gradient where it is not clipped by it")
    layer_decay: float | None = _f(None, "rate of a layer over the next's", Rule(above=0, most=1))
    layer_decay_min_scale: float = _f(0.0, "lower bound of that factor", _SHARE)
    layer_decay_no_opt_scale: float | None = _f(None, "freeze layers whose factor is less", _SHARE)
    opt_kwargs: dict[str, Any] = _f({}, "more arguments of the optimiser, KEY=VALUE ...")
    # schedule
    sched: str = _f("cosine", "learning rate schedule", Rule(choices=_SCHEDULES))
    sched_on_updates: bool = _f(False, "step the schedule after each update, not each epoch")
    lr: float | None = _f(None, "peak rate; default: lr_base scaled by the batch", _POSITIVE)
    lr_base: float = _f(0.1, "rate at a batch of lr_base_size", _POSITIVE)
    lr_base_size: int = _f(256, "see lr_base", _POSITIVE)
    lr_base_scale: str = _f("", "default: by optimiser", Rule(choices=("", "linear", "sqrt")))
    lr_noise: list[float] | None = _f(
        None, "noise on the rate: on and off", Rule(lengths=(1, 2), least=0, most=1)
    )
    lr_noise_pct: float = _f(0.67, "limit of the noise", _SHARE)
    lr_noise_std: float = _f(1.0, "standard deviation of the noise", _COUNT)
    lr_cycle_mul: float = _f(1.0, "factor of the cycle length", _POSITIVE)
    lr_cycle_decay: float = _f(0.5, "factor of the rate per cycle", _POSITIVE)
    lr_cycle_limit: int = _f(1, "cycles", _POSITIVE)
    lr_k_decay: float = _f(1.0, "k-decay of cosine and poly", _POSITIVE)
    lr_decay_fn: str | None = _f(None, "shape of the decay of wsd and rsqrt", Rule(choices=_DECAYS))
    lr_stable_timescale: float | None = _f(None, "time scale of rsqrt in epochs", _POSITIVE)
    warmup_lr: float = _f(1e-5, "rate at the start", _COUNT)
    min_lr: float = _f(0.0, "rate at the end", _COUNT)
    epochs: int = _f(300, "epochs", _POSITIVE)
    stop_epoch: int | None = _f(None, "stop after so many epochs of the schedule")
    epoch_repeats: float = _f(0.0, "repeats of a streamed data set per epoch", _COUNT)
    start_epoch: int | None = _f(None, "enter the schedule at this epoch", _COUNT)
    decay_milestones: list[int] = _f([90, 180, 270], "epochs of the multistep schedule", _POSITIVE)
    decay_epochs: float | None = _f(None, "epochs between decays", _POSITIVE)
    warmup_epochs: int = _f(5, "epochs of warm-up", _COUNT)
    warmup_prefix: bool = _f(False, "do not count the warm-up in epochs")
    cooldown_epochs: int = _f(0, "epochs at min_lr after the schedule", _COUNT)
    patience_epochs: int = _f(10, "epochs without progress before plateau decays", _COUNT)
    decay_rate: float = _f(0.1, "factor per decay", _POSITIVE, also="--dr")
    # augmentation and regularisation
    no_aug: bool = _f(False, "no augmentation")
    train_crop_mode: str | None = _f(None, "training crop", Rule(choices=("rrc", "rkrc", "rkrr")))
    scale: list[float] = _f([0.08, 1.0], "area of the training crop", _PAIR)
    ratio: list[float] = _f([3 / 4, 4 / 3], "aspect of the training crop", _PAIR)
    hflip: float = _f(0.5, "horizontal flip", _SHARE)
    vflip: float = _f(0.0, "vertical flip", _SHARE)
    color_jitter: float = _f(0.4, "colour jitter", _COUNT)
    color_jitter_prob: float | None = _f(None, "its probability", _SHARE)
    grayscale_prob: float = _f(0.0, "to grey", _SHARE)
    gaussian_blur_prob: float = _f(0.0, "blur", _SHARE)
    aa: str | None = _f(None, "AutoAugment or RandAugment policy")
    aug_repeats: int = _f(0, "versions of an image per epoch, of 1 / as many images", _COUNT)
    aug_splits: int = _f(
        0, "AugMix: versions of each image, the first one clean", Rule(least=0, most=64)
    )
    jsd_loss: bool = _f(False, "Jensen-Shannon divergence between them, and cross-entropy")
    split_bn: bool = _f(False, "batch norm for each of them (also for each half with --resplit)")
    bce_loss: bool = _f(False, "binary cross-entropy")
    bce_sum: bool = _f(False, "sum it over the classes")
    bce_target_thresh: float | None = _f(None, "threshold of its soft targets", _SHARE)
    bce_pos_weight: float | None = _f(None, "weight of its positives", _POSITIVE)
    reprob: float = _f(0.0, "random erasing", _SHARE)
    remode: str = _f("pixel", "what it fills in", Rule(choices=("pixel", "rand", "const")))
    recount: int = _f(1, "patches it erases", Rule(above=0, most=1000))
    resplit: bool = _f(False, "spare the clean versions, or the first half without --aug-splits")
    mixup: float = _f(0.0, "mixup alpha", _COUNT)
    cutmix: float = _f(0.0, "cutmix alpha", _COUNT)
    cutmix_minmax: list[float] | None = _f(
        None, "cutmix ratio range", Rule(lengths=(2,), least=0, most=1)
    )
    mixup_prob: float = _f(1.0, "probability of either", _SHARE)
    mixup_switch_prob: float = _f(0.5, "probability of cutmix where both are on", _SHARE)
    mixup_mode: str = _f("batch", "what shares one ratio", Rule(choices=("batch", "pair", "elem")))
    mixup_off_epoch: int = _f(0, "epoch from which both are off; 0: never", _COUNT)
    smoothing: float = _f(0.1, "label smoothing", _RATE)
    train_interpolation: str = _f(
        "random", "training resampling", Rule(choices=("random", *_RESAMPLING))
    )
    reduced_decoding: bool = _f(False, "decode a JPEG at 1/2, 1/4 or 1/8 where its crop allows it")
    drop: float | None = _f(None, "dropout", _RATE)
    drop_path: float | None = _f(None, "stochastic depth", _RATE)
    drop_block: float | None = _f(None, "drop block", _RATE)
    bn_momentum: float | None = _f(None, "batch norm momentum", Rule(above=0, most=1))
    bn_eps: float | None = _f(None, "batch norm epsilon", _POSITIVE)
    sync_bn: bool = _f(False, "batch norm over all processes")
    dist_bn: str = _f("reduce", "share its statistics", Rule(choices=("", "broadcast", "reduce")))
    no_ddp_bb: bool = _f(False, "do not broadcast buffers before each forward")
    # averaged weights
    model_ema: bool = _f(False, "keep an average of the weights")
    model_ema_force_cpu: bool = _f(False, "keep it on the CPU, and do not evaluate it")
    model_ema_decay: float = _f(0.9998, "its decay", _SHARE)
    model_ema_warmup: bool = _f(True, "let the decay grow from 0 (timm: off)")
    # distillation
    kd_model_name: str | None = _f(None, "teacher")
    kd_model_path: str | None = _f(None, "its weights; default: the published ones")
    kd_distill_type: str = _f(
        "logit", "what is matched", Rule(choices=("logit", "feature", "token"))
    )
    kd_loss_type: str = _f("kl", "loss of logit distillation", Rule(choices=("kl",)))
    kd_student_feature_dim: int | None = _f(None, "width of its features", _POSITIVE)
    kd_teacher_feature_dim: int | None = _f(None, "width of the teacher's", _POSITIVE)
    kd_token_distill_type: str = _f("hard", "of token distillation", Rule(choices=("soft", "hard")))
    kd_temperature: float = _f(4.0, "temperature", _POSITIVE)
    distill_loss_weight: float | None = _f(None, "weight of the teacher's loss", _COUNT)
    task_loss_weight: float | None = _f(None, "weight of the labels' loss", _COUNT)
    # supervision of the run
    seed: int = _f(42, "of everything random", Rule(least=0, most=2**31 - 1))
    recovery_interval: int = _f(0, "updates between recovery checkpoints", _COUNT)
    checkpoint_hist: int = _f(10, "best checkpoints to keep", _POSITIVE)
    save_epochs: list[int] | None = _f(None, "keep a milestone after so many epochs", _POSITIVE)
    val_interval: int = _f(1, "epochs between evaluations", _POSITIVE)
    eval_metric: str = _f("top1", "decides what is best", Rule(choices=("top1", "top5", "loss")))
    skip_nonfinite: int = _f(0, "updates with a non-finite loss to skip before stopping", _COUNT)
    profile: int = _f(0, "trace so many updates with torch's profiler, after ten", _COUNT)
    save_images: bool = _f(False, "write a batch of training images at each log interval")
    log_tensorboard: bool = _f(False, "write TensorBoard events")
    log_wandb: bool = _f(False, "log to Weights & Biases")
    wandb_project: str | None = _f(None, "project there")
    wandb_tags: list[str] | None = _f(None, "tags there")
    wandb_resume_id: str = _f("", "run to go on with there; default: that of the run's folder")

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

    @property
    def mixes(self) -> bool:
        """Whether images are mixed, so that targets are soft."""
        return self.mixup > 0 or self.cutmix > 0 or self.cutmix_minmax is not None


# What an evaluation takes from the run of its checkpoint, where it is not told otherwise.
INHERITED = (
    *("data_dir", "dataset", "split", "class_map", "input_img_mode", "input_key", "target_key"),
    *("model", "model_kwargs", "num_classes", "gp", "img_size", "input_size", "in_chans"),
    *("crop_pct", "crop_mode", "mean", "std", "interpolation", "batch_size", "workers"),
    *("channels_last", "amp", "amp_dtype", "fast_norm"),
    "float32_matmul_precision",
)
