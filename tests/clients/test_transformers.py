"""transformers takes the models through TimmBackbone and TimmWrapper."""

import json

import pytest
import timm
import torch
from families import SMALL
from timm.models import save_for_hf

transformers = pytest.importorskip("transformers", reason="needs the extra clients")

pytestmark = pytest.mark.parametrize("name", SMALL)


def test_a_backbone_gives_the_maps_that_timm_gives(name):
    config = transformers.TimmBackboneConfig(
        backbone=name, use_pretrained_backbone=False, out_indices=[0, 2]
    )
    backbone = transformers.TimmBackbone(config).eval()
    x = torch.randn(2, 3, 45, 64)
    maps = backbone(x).feature_maps
    model = timm.create_model(name)
    assert backbone.channels == [model.feature_info[i]["num_chs"] for i in (0, 2)]
    plain = timm.create_model(name, features_only=True, out_indices=(0, 2)).eval()
    plain.load_state_dict(backbone._backbone.state_dict())
    for actual, expected in zip(maps, plain(x), strict=True):
        assert torch.equal(actual, expected)


def test_the_default_of_a_backbone_is_its_last_map(name):
    config = transformers.TimmBackboneConfig(backbone=name, use_pretrained_backbone=False)
    (last,) = transformers.TimmBackbone(config).eval()(torch.randn(1, 3, 64, 64)).feature_maps
    assert last.shape[1] == timm.create_model(name).num_features


def test_a_wrapper_classifies_from_a_folder_that_timm_saved(name, tmp_path):
    model, x = timm.create_model(name, num_classes=7).eval(), torch.randn(2, 3, 32, 32)
    save_for_hf(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_args"]["num_classes"]  # passed a second time by transformers 5.23
    (tmp_path / "config.json").write_text(json.dumps(config))
    wrapper = transformers.TimmWrapperForImageClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(wrapper(x).logits, model(x))
    states = wrapper(x, output_hidden_states=True).hidden_states
    assert len(states) == len(model.feature_info)
