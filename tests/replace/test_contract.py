"""timm's contract of models, for models whose attention is replaced."""

import pickle

import pytest
import torch
from replace.originals import images, make
from timm.models import save_for_hf
from timm.models._features_fx import GraphExtractNet, get_notrace_modules
from timm.models._manipulate import reinit_non_persistent_buffers
from timm.optim import param_groups_layer_decay

from vit_ls import CompositeSlice, LongShort, replace_attention

KINDS = {
    "windows": LongShort(2, 0),
    "projection": LongShort(2, 3),
    "slices": CompositeSlice(2),
}
pytestmark = [
    pytest.mark.parametrize("kind", KINDS),
    pytest.mark.parametrize("key", ["vit", "registers", "eva02", "dinov3"]),
]


def replaced(key, kind, dtype=torch.float32, **more):
    return replace_attention(make(key, dtype, **more), KINDS[kind], keep=(1,))


def test_forward_is_the_head_of_the_features(key, kind):
    model = replaced(key, kind)
    x = images(model)
    features = model.forward_features(x)
    assert torch.equal(model.forward_head(features), model(x))
    assert model.forward_head(features, pre_logits=True).shape == (2, 32)


def test_another_classifier(key, kind):
    model = replaced(key, kind)
    x = images(model)
    model.reset_classifier(0)
    assert model(x).shape == (2, 32)
    model.reset_classifier(3)
    assert model(x).shape == (2, 3)
    assert model.get_classifier().out_features == 3


def test_intermediates_are_those_of_the_blocks(key, kind):
    model = replaced(key, kind)
    x = images(model)
    maps = model.forward_intermediates(x, intermediates_only=True)
    assert [m.shape for m in maps] == [(2, 32, *model.patch_embed.grid_size)] * 2
    early = model.forward_intermediates(x, indices=[0], stop_early=True, intermediates_only=True)
    assert torch.equal(early[0], maps[0])
    model.prune_intermediate_layers([0])
    assert torch.equal(model.forward_intermediates(x, intermediates_only=True)[0], maps[0])


def test_a_pickle_and_saved_weights_give_the_same_model(key, kind, tmp_path):
    model = replaced(key, kind)
    x = images(model)
    expected = model(x)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
    save_for_hf(model, tmp_path)
    other = replaced(key, kind)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    weights = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    other.load_state_dict(weights)
    assert torch.equal(other(x), expected)


def test_every_parameter_is_in_a_layer_of_layer_decay(key, kind):
    model = replaced(key, kind)
    groups = param_groups_layer_decay(model, layer_decay=0.5, no_weight_decay_list=())
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_half_precision_and_the_meta_device_are_taken(key, kind):
    model = replaced(key, kind).to(torch.bfloat16)
    assert model(images(model)).dtype == torch.bfloat16
    with torch.device("meta"):
        meta = replaced(key, kind)
    assert all(parameter.is_meta for parameter in meta.parameters())


def test_a_model_without_values_is_filled_from_weights(key, kind):
    model = replaced(key, kind)
    with torch.device("meta"):
        empty = replaced(key, kind)
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    reinit_non_persistent_buffers(empty)
    x = images(model)
    assert torch.equal(empty.eval()(x), model(x))


def test_torch_fx_takes_the_layers_as_leaves(key, kind):
    model = replaced(key, kind, dynamic_img_size=False)
    graph = GraphExtractNet(model, ["blocks.0", "blocks.1"])
    assert type(model.blocks[0].attn) in get_notrace_modules()
    x = images(model)
    found = graph(x)
    expected = model.forward_intermediates(x, output_fmt="NLC", intermediates_only=True)
    G = model.num_prefix_tokens
    for actual, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(actual[:, G:], wanted)
