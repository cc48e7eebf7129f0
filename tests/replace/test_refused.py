"""What cannot be replaced is refused in one line, and the model is as it was."""

import copy

import pytest
import timm
import torch
from replace.originals import images, make

from vit_ls import CompositeSlice, LongShort, replace_attention, replaceable


def refused(model, options=None, match="", **kwargs):
    modules = {name: id(module) for name, module in model.named_modules()}
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    with pytest.raises(ValueError, match=match) as error:
        replace_attention(model, options or LongShort(2, 0), **kwargs)
    assert "\n" not in str(error.value)
    assert {name: id(module) for name, module in model.named_modules()} == modules
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks


@pytest.mark.parametrize("name", ["test_resnet", "test_vit_relpos", "test_vil_ls"])
def test_models_without_such_attention_are_refused(name):
    model = timm.create_model(name)
    assert replaceable(model) == []
    refused(model, match="VisionTransformer, Eva or Beit")


def test_a_wrapped_or_compiled_model_is_refused():
    refused(torch.nn.DataParallel(make("vit")), match="nor wrapped, got DataParallel")
    refused(torch.compile(make("vit")), match="compiled nor wrapped, got OptimizedModule")
    model = make("vit")
    model.blocks[0].compile()
    refused(model, match="must not be compiled yet")


@pytest.mark.parametrize("keep", [(2,), (-1,), (0, 7)], ids=str)
def test_a_block_to_keep_must_be_there(keep):
    refused(make("vit"), keep=keep, match=r"keep must name blocks from 0 to 1, got")


def test_something_must_be_left_to_replace():
    refused(make("vit"), keep=(0, 1), match="keep must leave a block to replace, got all 2")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (LongShort(0, 0), "window=0, rank=0"),
        (LongShort(2, 0, position_table=True), "positions must stay the only ones"),
        (CompositeSlice(2, local_mixer="mlp"), "local_mixer='mlp'"),
        (CompositeSlice(2, composition="slices_first"), "composition='slices_first'"),
        ("long_short", "options must be a LongShort or a CompositeSlice, got 'long_short'"),
    ],
    ids=str,
)
def test_options_without_a_meaning_are_refused(options, match):
    refused(make("dinov3"), options, match=match)


def test_rotary_positions_of_an_unknown_kind_are_refused():
    model = make("dinov3")
    model.rope = torch.nn.Identity()
    refused(model, match="rotary positions must be of .*, got Identity")


def test_dropped_patches_are_refused():
    refused(make("vit", patch_drop_rate=0.5), match="patch_drop_rate must be 0")
    refused(make("eva02", patch_drop_rate=0.5), match="patch_drop_rate must be 0")


def test_shared_relative_biases_are_refused():
    model = make("beit", use_rel_pos_bias=False, use_shared_rel_pos_bias=True)
    refused(model, match="one that all blocks share")


def test_what_is_replaced_already_is_refused():
    model = replace_attention(make("vit"), LongShort(2, 0))
    refused(model, match="got replaced at block 0")


def test_other_attention_is_named():
    name = "vit_tiny_patch16_224"
    model = timm.create_model(name, embed_dim=32, num_heads=2, depth=2, attn_layer="diff")
    refused(model, match="AttentionRope, EvaAttention.*got Block at block 0")


def test_slices_need_heads_as_wide_as_the_block():
    model = make("vit")
    model.blocks[1].attn = timm.layers.Attention(32, 2, attn_head_dim=8).double()
    assert replace_attention(copy.deepcopy(model), LongShort(2, 0))(images(model)).isfinite().all()
    refused(model, CompositeSlice(2), match="16 of dim=32")


@pytest.mark.parametrize("more", [{"attn_mask": torch.ones(25, 25)}, {"is_causal": True}], ids=str)
def test_masks_between_tokens_are_refused(more):
    model = replace_attention(make("vit"), LongShort(2, 0))
    with pytest.raises(ValueError, match="takes no attn_mask"):
        model(images(model), **more)


def test_tokens_that_are_not_the_patches_are_refused():
    model = replace_attention(make("vit"), LongShort(2, 0))
    with pytest.raises(ValueError, match=r"a token for each patch of \(4, 6\), got 23"):
        model.blocks(torch.randn(1, 24, 32, dtype=torch.float64))


def test_another_size_of_patches_after_the_replacement_is_an_error():
    model = replace_attention(make("vit", dynamic_img_size=True), LongShort(2, 0))
    model.set_input_size(patch_size=(8, 8))
    with pytest.raises(ValueError, match="replaced after set_input_size"):
        model(images(model))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of timm, where it resizes the table of BEiT
@pytest.mark.parametrize("key", ["vit", "dinov3", "beit"])
def test_another_size_of_images_may_come_after_the_replacement(key):
    fixed = {} if key == "beit" else {"dynamic_img_size": False}
    original = make(key, **fixed)
    model = replace_attention(copy.deepcopy(original), LongShort(9, 0))
    for one in (original, model):
        one.set_input_size(img_size=(96, 48))
    x = images(original)
    torch.testing.assert_close(model(x), original(x), rtol=0, atol=1e-12)
