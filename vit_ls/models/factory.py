"""What the families share between a row of their table and a timm model."""

from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg

from vit_ls.grid import num_windows
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.specs import BackboneSpec


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


def create(variant: str, spec: BackboneSpec, pretrained: bool, **kwargs: Any) -> StagedTransformer:
    """Build the model of a spec as timm does.

    Args:
        variant: Name in timm's registry.
        spec: The architecture.
        pretrained: Load the weights that the pretrained config points to.
        **kwargs: Of `StagedTransformer` and of timm's `build_model_with_cfg`; any other is a
        TypeError.
    """
    features = spec.feature_stages or tuple(range(len(spec.stages)))
    model: StagedTransformer = build_model_with_cfg(
        StagedTransformer,
        variant,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": features, "feature_cls": "getter"},
        spec=spec,
        **kwargs,
    )
    return model
