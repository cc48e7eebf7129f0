"""The model of the golden file of CvT."""

import json
from pathlib import Path

from safetensors import safe_open
from timm.models import build_model_with_cfg

from vit_ls.attention import Convolutions, Full
from vit_ls.blocks import Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.spec import BackboneSpec

FILE = Path(__file__).parent / "data" / "cvt_reference_tiny.safetensors"


def config():
    """Arguments of transformers' CvtConfig."""
    with safe_open(FILE, "pt") as file:
        return json.loads(file.metadata()["config"])


def build(activation="quick_gelu", **kwargs):
    given = config()
    kernels = zip(given["patch_sizes"], given["patch_stride"], given["patch_padding"], strict=True)
    embeds = [Embed(k, s, p, cut=k > s + 1) for k, s, p in kernels]
    rows = zip(embeds, given["num_heads"], given["embed_dim"], given["depth"], strict=True)
    spec = BackboneSpec(
        tuple(StageSpec(e, h, d, n, Full(), int(d == 48)) for e, h, d, n in rows),
        img_size=64,
        global_pool="token",
        conv_projection=Convolutions(2, False),
        activation=activation,
        norm_eps=1e-5,
        released="cvt",
    )
    return build_model_with_cfg(
        StagedTransformer,
        "test_cvt",
        kwargs.pop("pretrained", False),
        pretrained_filter_fn=checkpoint_filter_fn,
        spec=spec,
        num_classes=given["num_labels"],
        **kwargs,
    ).eval()
