"""The golden tensors of the reference implementation of ViL-LS, and models that fit them."""

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file

from vit_ls.attention import Full, LongShort
from vit_ls.blocks import Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.names import convert_released
from vit_ls.models.spec import BackboneSpec

FILES = {
    window: Path(__file__).parent / "data" / f"vil_ls_reference_{window}_window.safetensors"
    for window in ("even", "odd")
}


def read(window):
    """(tensors, config) of a golden file."""
    with safe_open(FILES[window], "pt") as file:
        config = json.loads(file.metadata()["config"])
    return load_file(FILES[window]), config


def weights_of(tensors):
    """The released layout's state dict."""
    return {k.removeprefix("weights."): v for k, v in tensors.items() if k.startswith("weights.")}


def spec_of(config):
    """The spec of a golden file's architecture."""

    def stage(s):
        attention = Full(position_table=True)
        if s["attention"] == "long_short":
            attention = LongShort(s["window"], s["rank"], position_table=True)
        patch = Embed(s["patch_size"], s["patch_size"])
        return StageSpec(patch, s["heads"], s["dim"], s["depth"], attention, s["global_tokens"])

    return BackboneSpec(tuple(stage(s) for s in config["stages"]), config["img_size"])


def load(window):
    """(tensors, model) with the golden weights, converted."""
    tensors, config = read(window)
    model = StagedTransformer(spec_of(config), num_classes=config["num_classes"]).eval()
    model.load_state_dict(convert_released(weights_of(tensors)))
    return tensors, model
