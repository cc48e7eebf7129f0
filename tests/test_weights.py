"""python -m vit_ls.weights, and the page that lists what exists."""

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from papers.weights_table import table
from vit_ls import errors
from vit_ls.config import ConfigError
from vit_ls.paper import RELEASED
from vit_ls.weights import main

PAGE = Path(__file__).parents[1] / "docs" / "weights.md"


@pytest.fixture
def few(monkeypatch):
    """Only these models are asked, for time."""
    names = ["cst_vil_small", "cvt_13", "cvt_ls_13", "test_cvt", "test_cvt_ls", "vil_small"]
    monkeypatch.setattr(timm, "list_models", lambda: names)


class Payload:
    """Something that only arbitrary unpickling can bring back."""

    def __reduce__(self):
        return (Path.touch, (Path("unpickled"),))


@pytest.mark.landing
@pytest.mark.usefixtures("few")
def test_a_file_is_named_with_the_models_that_take_it(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    save_file(timm.create_model("test_cvt", num_classes=7).state_dict(), path)
    main([str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}: a CvT of this package, ")
    assert lines[0].endswith("7 classes")
    assert lines[1].startswith("loads into test_cvt: ")
    assert lines[2].startswith("starts, for training test_cvt_ls: ")
    assert "zero" in lines[2]
    assert "anew" in lines[2]
    assert len(lines) == 3


@pytest.mark.landing
@pytest.mark.usefixtures("few")
def test_an_absolute_model_is_told_from_a_relative_one(tmp_path, capsys):
    path = tmp_path / "vil.pth"
    torch.save({"net": timm.create_model("vil_small", position="absolute").state_dict()}, path)
    main([str(path)])
    out = capsys.readouterr().out
    assert 'loads into vil_small(position="absolute"): ' in out
    assert 'position="relative"' not in out
    assert "starts, for training cst_vil_small: " in out


@pytest.mark.usefixtures("few")
def test_a_file_that_no_model_takes_says_what_the_nearest_would_miss(tmp_path):
    path = tmp_path / "resnet.pth"
    torch.save(timm.create_model("test_resnet").state_dict(), path)
    with pytest.raises(errors.RunFailedError, match=r"no model takes it; the nearest, .* missing"):
        main([str(path)])


def test_what_cannot_be_read_without_code_is_one_line_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pth"
    torch.save({"state_dict": {}, "args": Payload()}, path)
    with pytest.raises(
        ConfigError, match=r"evil.pth cannot be read without running code"
    ) as raised:
        main([str(path)])
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "unpickled").exists()
    torch.save([1, 2], path)
    with pytest.raises(ConfigError, match="must hold named tensors, got list"):
        main([str(path)])
    torch.save({"epoch": 3}, path)
    with pytest.raises(ConfigError, match="must hold named tensors, got none"):
        main([str(path)])
    with pytest.raises(ConfigError, match="No such file"):
        main([str(tmp_path / "nowhere.pth")])


def test_the_page_has_the_table_of_the_registry_and_each_released_file():
    page = PAGE.read_text()
    assert table() in page
    tags = {row.tag for row in RELEASED}
    assert tags == {name for name in timm.list_pretrained(["cvt_*", "vil_*"]) if name in page}
