"""Weights of a relative as a start for training: what is taken over, and what is refused."""

import logging

import pytest
import timm
import torch

from vit_ls.models.convert import checkpoint_filter_fn, fit
from vit_ls.ops import narrow_window_table, window_halo, window_row_stride


def unscaled(model):
    """A CvT's state dict with Microsoft's names and scale of the queries."""
    renamed = {}
    for key, value in model.state_dict().items():
        stage = key.split(".")[1]
        if ".qkv.q.pointwise." in key:
            value = value * model.stages[int(stage)].blocks[0].attn.num_heads ** 0.5
        new = key.replace(f"stages.{stage}.", f"stage{stage}.").replace("embed.", "patch_embed.")
        new = new.replace("global_tokens", "cls_token").replace("head.fc.", "head.")
        for x in "qkv":
            new = new.replace(f"attn.qkv.{x}.depthwise.", f"attn.conv_proj_{x}.conv.")
            new = new.replace(f"attn.qkv.{x}.norm.", f"attn.conv_proj_{x}.bn.")
            new = new.replace(f"attn.qkv.{x}.pointwise.", f"attn.proj_{x}.")
        renamed[new] = value
    return renamed


@pytest.mark.parametrize(
    ("source", "target", "taken", "zero", "new"),
    [
        ("cvt_13", "cvt_ls_13", (459, 19_997_480), (39, 12_864), (104, 175_120)),
        ("cvt_21", "cvt_ls_21_448", (731, 31_622_696), (63, 20_928), (168, 475_776)),
    ],
)
def test_a_cvt_file_starts_a_cvt_ls_with_everything_in_it(source, target, taken, zero, new):
    weights = timm.create_model(source, device="meta").state_dict()
    model = timm.create_model(target, device="meta")
    found = fit(weights, model)
    own = dict(model.named_parameters())

    def count(keys):
        return len(keys), sum(own[key].numel() for key in keys if key in own)

    assert found.problems == 0
    assert not found.left_out
    assert count(found.zero) == zero
    assert count(found.new) == new
    assert count(set(found.state_dict) - set(found.zero) - set(found.new)) == taken


def test_queries_are_folded_and_biases_start_at_zero(caplog):
    source = timm.create_model("test_cvt")
    target = timm.create_model("test_cvt_ls")
    before = {k: v.clone() for k, v in target.state_dict().items()}
    with caplog.at_level(logging.WARNING):
        target.load_state_dict(checkpoint_filter_fn(unscaled(source), target))
    (message,) = caplog.messages
    assert message.startswith("The checkpoint is a CvT with Microsoft's names. For test_cvt_ls: ")
    for part in ("8 folded", "12 zero", "32 anew"):
        assert part in message
    ours, theirs = target.state_dict(), source.state_dict()
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value)
    for key in ours.keys() - theirs.keys():
        expected = 0 * before[key] if ".qkv." in key else before[key]
        assert torch.equal(ours[key], expected), key


def test_a_started_model_trains_from_a_sane_loss():
    source = timm.create_model("test_cvt", num_classes=10)
    target = timm.create_model("test_cvt_ls", num_classes=10)
    target.load_state_dict(checkpoint_filter_fn(source.state_dict(), target))
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8)
    loss = torch.nn.functional.cross_entropy(target(images), labels)
    loss.backward()
    assert loss < 5
    assert all(p.grad is not None and p.grad.isfinite().all() for p in target.parameters())


def test_evaluation_refuses_a_file_that_only_starts_a_model():
    source, target = timm.create_model("test_cvt"), timm.create_model("test_cvt_ls")
    with pytest.raises(ValueError, match=r"must hold the whole model.*32 anew"):
        target.fit_state_dict(source.state_dict())


def test_a_part_that_a_file_has_somewhere_does_not_start_anew_elsewhere():
    """Else a truncated file would pass for one of another architecture."""
    weights = timm.create_model("test_cvt_ls").state_dict()
    for key in [k for k in weights if k.endswith("depthwise.bias") and ".qkv." in k]:
        del weights[key]
    del weights["stages.2.blocks.1.attn.norm_kv.weight"]
    with pytest.raises(ValueError, match=r"1 missing \(stages.2.blocks.1.attn.norm_kv.weight\)"):
        checkpoint_filter_fn(weights, timm.create_model("test_cvt_ls"))


@pytest.mark.parametrize("position", ["relative", "absolute"])
def test_a_vil_file_starts_a_vil_ls(position):
    source = timm.create_model("test_vil", position=position)
    target = timm.create_model("test_vil_ls")
    found = fit(source.state_dict(), target)
    assert found.problems == 0
    state = found.state_dict
    assert torch.equal(
        state["stages.1.blocks.0.attn.qkv.weight"],
        source.state_dict()["stages.1.blocks.0.attn.qkv.weight"],
    )
    table = "stages.0.blocks.0.attn.position_bias.table"
    if position == "relative":
        assert all("global_" in key for key in found.left_out)
        assert torch.equal(state[table], narrow_window_table(source.state_dict()[table], 4))
        last = "stages.3.blocks.0.attn.position_bias.table"
        assert torch.equal(state[last], source.state_dict()[last])
    else:
        assert all(".embed.pos_" in key for key in found.left_out)
        assert table in found.new


@pytest.mark.parametrize("position", ["relative", "absolute"])
def test_a_vil_file_starts_a_cst_vil(position):
    source = timm.create_model("test_vil", position=position)
    target = timm.create_model("test_cst_vil")
    found = fit(source.state_dict(), target)
    assert found.problems == 0
    assert {key for key in found.new if ".geometry." in key} == {
        f"stages.{i}.geometry.{name}_pos" for i in (0, 1) for name in ("local", "slice")
    }
    assert len(found.new) == (4 if position == "relative" else 7)
    assert {f"stages.{i}.global_tokens" for i in range(3)} <= set(found.left_out)


def test_a_narrowed_table_keeps_the_bias_of_each_offset_that_has_a_row_of_its_own():
    window = 7
    offsets = torch.arange(27) - 13
    table = (100.0 * offsets[:, None] + offsets[None]).reshape(-1, 1)  # bias = 100 dy + dx
    narrow = narrow_window_table(table, window)
    reach = window + window_halo(window) - 1
    stride = window_row_stride(window)
    for dy, dx in ((0, 0), (3, -2), (-9, 0), (5, 3)):
        row = (dy + reach) * stride + dx + reach
        assert narrow[row, 0] == 100 * dy + dx


def test_a_table_of_as_many_rows_but_another_halo_is_told_by_the_kind_of_file():
    source = timm.create_model("test_vil", window=3)  # 121 rows
    target = timm.create_model("test_vil_ls", window=5)  # 121 rows, of other offsets
    key = "stages.0.blocks.0.attn.position_bias.table"
    found = fit(source.state_dict(), target)
    assert source.state_dict()[key].shape == found.state_dict[key].shape
    assert not torch.equal(source.state_dict()[key], found.state_dict[key])
    assert key in found.resized


def test_the_released_tiny_does_not_start_the_tiny_of_other_depths():
    weights = timm.create_model("vil_tiny", device="meta").state_dict()
    with pytest.raises(ValueError, match=r"must fit vil_ls_tiny.*missing \(stages.1.blocks.1"):
        checkpoint_filter_fn(weights, timm.create_model("vil_ls_tiny", device="meta"))
