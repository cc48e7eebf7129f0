import logging
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
import vil_ls_reference as reference
from timm.models import build_model_with_cfg

from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.names import convert_released
from vit_ls.models.vil_ls import VARIANTS


def released_keys(model):
    """The state dict of a ViL-LS model of ours in the released layout, index buffers and all."""
    renamed = {}
    for key, value in model.state_dict().items():
        new = key.replace("head.fc.", "head.")
        if key.startswith("stages."):
            _, stage, rest = key.split(".", 2)
            place = f"layer{int(stage) + 1}"
            if rest == "global_tokens":
                new = f"{place}.0.cls_token"
            elif rest.startswith("embed."):
                new = f"{place}.0." + rest.removeprefix("embed.").replace("norm.", "norm_embed.")
            else:
                _, block, rest = rest.split(".", 2)
                entry = 2 * int(block) + (1 if rest.startswith(("norm1.", "attn.")) else 2)
                for ours, theirs in (
                    ("norm1.", "norm."),
                    ("norm2.", "norm."),
                    ("position_bias.table", "local_relative_position_bias_table"),
                    ("position_bias.global_local", "g2l_relative_position_bias"),
                    ("position_bias.global_global", "g2g_relative_position_bias"),
                    ("dynamic_projection.", "to_dynamic_projection."),
                    ("norm_kv.", "dual_ln_full."),
                    ("norm_projected.", "dual_ln_dp."),
                ):
                    rest = rest.replace(ours, theirs)
                new = f"{place}.{entry}.{rest}"
                if rest.endswith("local_relative_position_bias_table"):
                    index = new.replace(
                        "local_relative_position_bias_table", "relative_position_index"
                    )
                    renamed[index] = torch.zeros(2, 2, dtype=torch.long)
        renamed[new] = value
    return renamed


def save_released(model, path, **extra):
    """A file as the authors' training script writes it."""
    net = {f"module.{key}": value for key, value in released_keys(model).items()}
    wrapper = {"net": net, "arch": "msvit", "epoch": 299, "best_acc": 84.1}
    torch.save(wrapper | {"optimizer": {"state": {}}, "scheduler": {"last_epoch": 3}} | extra, path)
    return str(path)


def load(name, path, **kwargs):
    return timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"file": path}, **kwargs)


@pytest.fixture
def source():
    model = timm.create_model("test_vil_ls").eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.05)
    return model


@pytest.fixture
def released(source, tmp_path):
    return save_released(source, tmp_path / "model_best.pth")


def test_the_golden_files_convert_to_exactly_the_model_s_keys():
    tensors, config = reference.read("even")
    model = StagedTransformer(reference.spec_of(config), num_classes=config["num_classes"])
    assert convert_released(reference.weights_of(tensors)).keys() == model.state_dict().keys()


def test_a_released_file_loads_through_timm(source, released):
    loaded = load("test_vil_ls", released).eval()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded(x), source(x))


def test_another_number_of_classes_gets_a_new_classifier(source, released):
    loaded = load("test_vil_ls", released, num_classes=7)
    assert loaded.get_classifier().weight.shape == (7, 128)
    assert torch.equal(loaded.norm.weight, source.norm.weight)


def test_another_number_of_channels_adapts_the_first_convolution(source, released):
    loaded = load("test_vil_ls", released, in_chans=1)
    expected = source.stages[0].embed.proj.weight.sum(1, keepdim=True)
    torch.testing.assert_close(loaded.stages[0].embed.proj.weight, expected)


def test_features_only_loads_the_same_weights(source, released):
    maps = load("test_vil_ls", released, features_only=True).eval()(torch.ones(1, 3, 32, 32))
    expected = source.forward_intermediates(torch.ones(1, 3, 32, 32), intermediates_only=True)
    for actual, e in zip(maps, expected, strict=True):
        assert torch.equal(actual, e)


def test_weights_of_224_load_into_384_with_their_tables_resized(tmp_path):
    small = timm.create_model("vil_ls_tiny", num_classes=1000)
    path = save_released(small, tmp_path / "model_best.pth")
    large = load("vil_ls_tiny", path, window=8, img_size=384)
    for stage, rows in ((0, 375), (1, 375), (2, 47 * 47), (3, 23 * 23)):
        table = large.stages[stage].blocks[0].attn.position_bias.table
        before = small.stages[stage].blocks[0].attn.position_bias.table
        assert table.shape[0] == rows
        # resized, not drawn anew: as the table before, it has the reference's bilinear mean
        assert abs(table.mean() - before.mean()) < 2e-3
    assert torch.equal(
        large.stages[2].blocks[3].attn.qkv.weight, small.stages[2].blocks[3].attn.qkv.weight
    )


def test_native_weights_are_left_as_they_are(source):
    state_dict = source.state_dict()
    filtered = checkpoint_filter_fn(state_dict, source)
    assert filtered.keys() == state_dict.keys()
    assert all(filtered[k] is v for k, v in state_dict.items())


def test_a_projection_of_another_rank_stays_as_initialised_and_is_named(source, released, caplog):
    with caplog.at_level(logging.WARNING):
        loaded = load("test_vil_ls", released, rank=6)
    assert "4 anew (attn.dynamic_projection.weight, attn.dynamic_projection.bias)" in caplog.text
    assert loaded.stages[0].blocks[0].attn.dynamic_projection.weight.shape == (6, 32)
    assert torch.equal(
        loaded.stages[0].blocks[0].attn.qkv.weight, source.stages[0].blocks[0].attn.qkv.weight
    )


class Payload:
    """Something that only arbitrary unpickling can bring back."""

    def __reduce__(self):
        return (Path.touch, (Path("unpickled"),))


def test_a_file_that_needs_unpickling_is_refused_and_says_so(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = save_released(source, tmp_path / "model_best.pth", args=Payload())
    with pytest.raises((RuntimeError, pickle.UnpicklingError), match="weights_only=True blocked"):
        load("test_vil_ls", path)
    assert not (tmp_path / "unpickled").exists()


def test_a_file_of_another_architecture_is_one_error_that_lists_what_differs(tmp_path):
    path = str(tmp_path / "resnet.pth")
    torch.save(timm.create_model("test_resnet").state_dict(), path)
    with pytest.raises(ValueError, match="must fit test_vil_ls") as error:
        load("test_vil_ls", path)
    assert "missing (stages.0.global_tokens, " in str(error.value)
    assert "unexpected (conv1." in str(error.value)
    assert len(str(error.value)) < 1500


def test_wrong_shapes_are_listed_with_both_shapes(source, tmp_path):
    path = save_released(source, tmp_path / "model_best.pth")
    with pytest.raises(ValueError, match=r"0 missing; 0 unexpected; \d+ of another shape") as error:
        load_into_other_dims(path)
    assert "(32, 3, 4, 4) instead of (16, 3, 4, 4)" in str(error.value)


def load_into_other_dims(path):
    """Load into the test model's depths with half the width."""
    spec = VARIANTS["test_vil_ls"]
    stages = tuple(replace(s, dim=s.num_heads * 16) for s in spec.stages)
    return build_model_with_cfg(
        StagedTransformer,
        "test_vil_ls",
        True,
        pretrained_cfg_overlay={"file": path},
        pretrained_filter_fn=checkpoint_filter_fn,
        spec=replace(spec, stages=stages),
    )


def test_a_refused_file_leaves_the_model_as_it_was(source):
    before = {k: v.clone() for k, v in source.state_dict().items()}
    broken = dict(source.state_dict())
    del broken["norm.weight"]
    with pytest.raises(ValueError, match=r"1 missing \(norm.weight\)"):
        checkpoint_filter_fn(broken, source)
    assert all(torch.equal(v, before[k]) for k, v in source.state_dict().items())


def test_the_published_addresses_stand_in_the_pretrained_configs():
    for name in ("vil_ls_medium", "vil_ls_base", "vil_ls_medium_384"):
        cfg = timm.get_pretrained_cfg(name)
        assert cfg.url.endswith("/model_best.pth?dl=1"), name
    assert not timm.get_pretrained_cfg("vil_ls_tiny").url
