"""What the families share between a row of their table and a timm model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import PretrainedCfg, build_model_with_cfg, resolve_pretrained_cfg

from vit_ls.attention import Options
from vit_ls.grid import num_windows
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.spec import BackboneSpec

_PAIRS = ("slice_size",)
"""Options of which two numbers are one value."""


def default_cfg(img_size: int, *, stride: int = 32, **kwargs: Any) -> dict[str, Any]:
    """The pretrained config that timm keeps of a model for square images.

    Args:
        img_size: Side in pixels.
        stride: Reduction of the last feature map.
        **kwargs: More entries, or other values; timm checks their names.
    """
    side = num_windows(img_size, stride)
    return {
        "num_classes": 1000,
        "input_size": (3, img_size, img_size),
        "pool_size": (side, side),
        "crop_pct": 0.875,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "stages.0.embed.proj",
        "classifier": "head.fc",
        **kwargs,
    }


def change_attention(spec: BackboneSpec, kind: type[Options], **options: Any) -> BackboneSpec:
    """The spec with other options of a kind of attention: a paper's ablations, and other sizes.

    Args:
        spec: To change.
        kind: Of the stages to change.
        **options: Fields of `kind`: one value for all of its stages, or a sequence of one for each;
            None leaves what is there. Where (a, b) is one value, as of `slice_size`, values that
            differ are ((a, b), (c, d)).

    Raises:
        ValueError: a sequence whose length is not the number of these stages.
    """
    places = [i for i, stage in enumerate(spec.stages) if isinstance(stage.attention, kind)]
    by_stage = {name: _per_stage(name, value, len(places)) for name, value in options.items()}
    stages = list(spec.stages)
    for n, i in enumerate(places):
        changed = {name: values[n] for name, values in by_stage.items() if values[n] is not None}
        attention: Any = stages[i].attention
        stages[i] = replace(stages[i], attention=replace(attention, **changed))
    return replace(spec, stages=tuple(stages))


def _per_stage(name: str, value: Any, n: int) -> Sequence[Any]:
    """The value for each of n stages."""
    one = not isinstance(value, Sequence) or isinstance(value, str)
    if one or (name in _PAIRS and not any(isinstance(v, Sequence) for v in value)):
        return (value,) * n
    if len(value) != n:
        raise ValueError(
            f"{name} must be one value or one for each of {n} stages, got {name}={value}."
        )
    return value


def create(variant: str, spec: BackboneSpec, pretrained: bool, **kwargs: Any) -> StagedTransformer:
    """Build the model of a spec as timm does.

    Args:
        variant: Name in timm's registry.
        spec: The architecture.
        pretrained: Load the weights that the pretrained config points to.
        **kwargs: Of `StagedTransformer` and of timm's `build_model_with_cfg`; any other is a
        TypeError.

    Raises:
        FileNotFoundError: The weights can neither be fetched nor are they in a cache.
    """
    features = spec.features or tuple(range(len(spec.stages)))

    def build(**more: Any) -> StagedTransformer:
        model: StagedTransformer = build_model_with_cfg(
            StagedTransformer,
            variant,
            pretrained,
            pretrained_filter_fn=checkpoint_filter_fn,
            feature_cfg={"out_indices": features, "feature_cls": "getter"},
            spec=spec,
            **{**kwargs, **more},
        )
        return model

    cfg = resolve_pretrained_cfg(
        variant, kwargs.get("pretrained_cfg"), kwargs.get("pretrained_cfg_overlay")
    )
    remote = not (cfg.file or cfg.state_dict) and (cfg.hf_hub_id or cfg.url)
    if not pretrained or not remote or cfg.source == "local-dir":
        return build()
    try:
        return build() if cfg.hf_hub_id else build(cache_dir=_cache(cfg, kwargs.get("cache_dir")))
    # What a hub or an address that cannot be reached raises; both retry and warn on their own.
    except OSError as error:
        where = (
            f"model.safetensors or pytorch_model.bin of https://huggingface.co/{cfg.hf_hub_id}"
            if cfg.hf_hub_id
            else cfg.url
        )
        raise FileNotFoundError(
            f"the weights {cfg.architecture}.{cfg.tag} cannot be fetched and are in no cache: "
            "bring the file and name it with --pretrained-path FILE, or with "
            f"pretrained_cfg_overlay=dict(file=FILE). It is {where}"
        ) from error


def _cache(cfg: PretrainedCfg, folder: str | Path | None) -> Path:
    """Where weights with an address are kept: by name, for those of ViL share one file name."""
    parent = Path(torch.hub.get_dir()) / "checkpoints" if folder is None else Path(folder)
    return parent / f"{cfg.architecture}.{cfg.tag}"
