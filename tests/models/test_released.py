"""Released weights: their tags, where they are kept, and what is said without a network."""

from pathlib import Path
from urllib.error import URLError

import pytest
import timm
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from timm.models import _builder

RELEASED = {
    "vil_ls_medium.in1k",
    "vil_ls_base.in1k",
    "vil_ls_medium_384.in1k",
    "cvt_13.msft_in1k",
    "cvt_21.msft_in1k",
    "cvt_13_384.msft_in1k",
    "cvt_21_384.msft_in1k",
    "cvt_13_384.msft_in22k_ft_in1k",
    "cvt_21_384.msft_in22k_ft_in1k",
    "cvt_w24_384.msft_in22k_ft_in1k",
    "vil_tiny.msft_in1k",
    "vil_small.msft_in1k",
    "vil_medium.msft_in1k",
    "vil_tiny.msft_abs_in1k",
    "vil_small.msft_abs_in1k",
    "vil_medium.msft_abs_in1k",
    "vil_medium_wide.msft_abs_in1k",
    "vil_medium_384.msft_in22k_ft_in1k",
    "vil_base_384.msft_in22k_ft_in1k",
    "vil_medium_384.msft_abs_in22k_ft_in1k",
    "vil_base_384.msft_abs_in22k_ft_in1k",
    "vil_medium_wide_384.msft_abs_in22k_ft_in1k",
    "vil_base_wide_384.msft_abs_in22k_ft_in1k",
}


def test_timm_lists_every_released_tag():
    listed = {*timm.list_pretrained("cvt_*"), *timm.list_pretrained("vil_*")}
    assert {name for name in listed if not name.startswith("cvt_pp")} == RELEASED


def test_no_two_tags_have_one_source():
    sources = [
        cfg.hf_hub_id or cfg.url for cfg in (timm.get_pretrained_cfg(name) for name in RELEASED)
    ]
    assert len(set(sources)) == len(RELEASED)


def test_files_of_one_name_are_kept_apart(monkeypatch, tmp_path):
    """All of ViL's files are called model_best.pth, and torch keeps files by that name."""
    folders = {}

    def download(url, model_dir, **_how):
        folders[url] = Path(model_dir)
        position = "relative" if "_ape0_" in url else "absolute"
        return timm.create_model("vil_tiny", position=position).state_dict()

    monkeypatch.setattr(_builder, "load_state_dict_from_url", download)
    for tag in ("msft_in1k", "msft_abs_in1k"):
        timm.create_model(f"vil_tiny.{tag}", pretrained=True, cache_dir=str(tmp_path))
    assert sorted(folders.values()) == [
        tmp_path / "vil_tiny.msft_abs_in1k",
        tmp_path / "vil_tiny.msft_in1k",
    ]


@pytest.mark.parametrize(
    ("name", "loader", "error", "where"),
    [
        (
            "cvt_13.msft_in1k",
            "load_state_dict_from_hf",
            LocalEntryNotFoundError("no"),
            "huggingface.co/microsoft/cvt-13",
        ),
        (
            "vil_tiny.msft_in1k",
            "load_state_dict_from_url",
            URLError("no"),
            "longtiny1191_ape0_exact0_nglo1_mode1_swith075/model_best.pth",
        ),
    ],
)
def test_without_network_and_cache_one_line_says_which_file_to_bring(
    name, loader, error, where, monkeypatch
):
    def unreachable(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(_builder, loader, unreachable)
    with pytest.raises(FileNotFoundError) as raised:
        timm.create_model(name, pretrained=True)
    message = str(raised.value)
    assert message.startswith(f"the weights {name} cannot be fetched")
    assert "--pretrained-path FILE" in message
    assert message.endswith(where)
    assert "\n" not in message
    assert len(message) < 500


def test_a_file_that_is_brought_is_taken_instead(tmp_path):
    source = timm.create_model("cvt_13")
    torch.save(source.state_dict(), tmp_path / "cvt-13.pth")
    overlay = {"file": str(tmp_path / "cvt-13.pth")}
    model = timm.create_model("cvt_13", pretrained=True, pretrained_cfg_overlay=overlay)
    assert torch.equal(model.norm.weight, source.norm.weight)
    with pytest.raises(FileNotFoundError):
        timm.create_model("cvt_13", pretrained=True, pretrained_cfg_overlay={"file": "nowhere"})
