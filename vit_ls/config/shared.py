# ruff: noqa: RUF009 - setting makes dataclass fields
"""What training and validation share: data, model, images, machine.

Names, meaning and defaults are those of timm's scripts, so that its users can bring their command
lines; where a default differs, the help text says so. A setting is one row: `vit_ls.config.rows`.
"""

from dataclasses import dataclass
from typing import Any

from vit_ls.config.rows import (
    ABOVE_0,
    FREE,
    NOT_BELOW_0,
    Needs,
    Never,
    Rule,
    setting,
)

WEIGHTS = ("best", "ema", "raw")
"""Of a checkpoint: what the run scored best with, the average, or the weights themselves."""
WEIGHTS_HELP = "of the checkpoint: best (what its run scored best with), ema (the average) or raw"

RESAMPLING = ("nearest", "bilinear", "bicubic", "lanczos")
FROM_CHECKPOINT = Never("the weights are those of the checkpoint")

_CROPS = ("center", "squash", "border")
_COMPILED = Needs(lambda c: c.torchcompile is not None, "--torchcompile")
_REPLACED = Needs(lambda c: c.replace_attention is not None, "--replace-attention")
_MIXED = Needs(lambda c: c.amp is not False, "--amp")


@dataclass(frozen=True, kw_only=True)
class _Data:
    """Data."""

    data_dir: str = setting(
        "",
        "folder or tar of the images; without it and --dataset: the digits",
        resume=FREE,
        inherited=True,
        sequence=True,
        timm="data",
        timm_unset=None,
        known_as="data_path",
    )
    dataset: str = setting(
        "",
        "kind: '' (folder, tar), digits, torch/, hfds/, wds/, tfds/ NAME",
        also="-d",
        inherited=True,
    )
    class_map: str = setting("", "file that maps class names to indices", inherited=True)
    batch_size: int = setting(
        128,
        "images per process and step",
        ABOVE_0,
        also="-b",
        inherited=True,
        sequence=True,
        known_as="bs",
    )
    workers: int = setting(
        4,
        "loading processes per process",
        Rule(least=0, most=1024),
        also="-j",
        resume=FREE,
        inherited=True,
        known_as="num_workers",
    )
    max_unreadable: int = setting(
        10, "images of a split that may be unreadable", NOT_BELOW_0, resume=FREE
    )
    input_img_mode: str | None = setting(
        None, "default: L for 1 channel", Rule(choices=("RGB", "L")), inherited=True
    )
    input_key: str | None = setting(
        None, "key of the images in wds/ and hfds/ datasets", inherited=True
    )
    target_key: str | None = setting(
        None, "key of the labels in wds/ and hfds/ datasets", inherited=True
    )
    dataset_download: bool = setting(False, "let torch/ and tfds/ datasets download", resume=FREE)
    dataset_trust_remote_code: bool = setting(
        False, "let a Hugging Face dataset run its own code", resume=FREE
    )
    pin_mem: bool | None = setting(
        None, "pin the batches' memory; default: where the device is CUDA", resume=FREE
    )


@dataclass(frozen=True, kw_only=True)
class _Model:
    """Model."""

    model: str = setting(
        "resnet50",
        "any model that timm knows",
        also="-m",
        resume=Never("the weights are of the other one"),
        inherited=True,
        known_as="arch architecture",
    )
    model_kwargs: dict[str, Any] = setting(
        {}, "more arguments of the model, KEY=VALUE ...", inherited=True
    )
    replace_attention: str | None = setting(
        None,
        "put this attention into a ViT of timm's; its weights are kept",
        Rule(choices=("long_short", "composite_slice")),
        resume=Never("the weights are of the other one"),
        inherited=True,
    )
    attention_kwargs: dict[str, Any] = setting(
        {},
        "options of that attention, KEY=VALUE ...",
        needs=(_REPLACED,),
        resume=Never("the weights are of the other ones"),
        inherited=True,
    )
    keep_attention: list[int] | None = setting(
        None,
        "blocks that keep their own, from 0",
        NOT_BELOW_0,
        needs=(_REPLACED,),
        resume=Never("the weights are of the other ones"),
        inherited=True,
    )
    pretrained: bool = setting(False, "start from the published weights", resume=FROM_CHECKPOINT)
    pretrained_path: str | None = setting(
        None, "start from this file as if it were the published one", resume=FROM_CHECKPOINT
    )
    pretrained_cfg_overlay: dict[str, Any] = setting({}, "changes to the model's pretrained config")
    num_classes: int | None = setting(
        None, "default: as many as the data has", ABOVE_0, inherited=True
    )
    gp: str | None = setting(None, "global pooling; default: the model's", inherited=True)
    img_size: int | None = setting(
        None,
        "side of the square input; default: the model's",
        ABOVE_0,
        inherited=True,
        known_as="image_size imgsz resolution",
    )
    in_chans: int | None = setting(
        None, "input channels; default: the model's", ABOVE_0, inherited=True
    )
    input_size: list[int] | None = setting(
        None, "channels, height, width", Rule(above=0, lengths=(3,)), inherited=True
    )


@dataclass(frozen=True, kw_only=True)
class _Images:
    """Images, beside the model's own settings."""

    crop_pct: float | None = setting(
        None, "share of the centre crop in evaluation", Rule(least=0.05, most=1), inherited=True
    )
    crop_mode: str | None = setting(
        None, "crop in evaluation", Rule(choices=_CROPS), inherited=True
    )
    interpolation: str = setting("", "resampling", Rule(choices=("", *RESAMPLING)), inherited=True)
    mean: list[float] | None = setting(
        None, "mean of the normalisation", Rule(lengths=(1, 3)), inherited=True
    )
    std: list[float] | None = setting(
        None, "std of the normalisation", Rule(above=0, lengths=(1, 3)), inherited=True
    )


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """Machine and precision."""

    device: str = setting(
        "auto",
        "auto (timm: cuda) takes the GPU where there is one",
        resume=FREE,
        sequence=True,
        known_as="gpu",
    )
    amp: bool | None = setting(
        None,
        "mixed precision; default: on a GPU (timm: off)",
        also="--native-amp",
        inherited=True,
        sequence=True,
        timm="native_amp",
    )
    amp_dtype: str = setting(
        "bfloat16",
        "of mixed precision (timm: float16)",
        Rule(choices=("bfloat16", "float16")),
        needs=(_MIXED,),
        inherited=True,
        sequence=True,
    )
    torchcompile: str | None = setting(
        None,
        "torch.compile, with this backend (alone: inductor)",
        alone="inductor",
        resume=FREE,
        sequence=True,
    )
    torchcompile_mode: str | None = setting(
        None, "mode of torch.compile", needs=(_COMPILED,), resume=FREE, sequence=True
    )
    channels_last: bool = setting(False, "channels-last memory layout", resume=FREE, inherited=True)
    float32_matmul_precision: str | None = setting(
        None,
        "of float32 products; default: high, which is TF32, on a GPU",
        Rule(choices=("highest", "high", "medium")),
        short={"--tf32": "high", "--no-tf32": "highest"},
        inherited=True,
        sequence=True,
    )
    cudnn_benchmark: bool = setting(
        True, "let cuDNN time its convolutions and take the fastest", resume=FREE
    )
    fast_norm: bool = setting(
        False, "timm's norms in the precision of autocast, not in float32", inherited=True
    )
    device_modules: list[str] | None = setting(
        None, "Python modules that bring the device's backend", resume=FREE
    )
    dist_timeout: float = setting(
        600.0, "seconds until a lost rank ends the job", ABOVE_0, resume=FREE, sequence=True
    )
    log_interval: int = setting(
        50, "updates between two log lines", ABOVE_0, also="--log-freq", resume=FREE, sequence=True
    )


@dataclass(frozen=True, kw_only=True)
class DataConfig(_Machine, _Images, _Model, _Data):
    """What training and validation share."""

    @property
    def weights_asked(self) -> str:
        """Which weights of a file are asked for, one of `WEIGHTS`."""
        return "best"
