"""The code of the pages, as a reader would run it."""

import shutil
from pathlib import Path

import pytest
import sklearn.datasets
import timm
import torch
from documents import PAGES, blocks_of, run
from safetensors.torch import save_file

import vit_ls
from vit_ls.config import TrainConfig, asdict

BLOCKS = [
    pytest.param(block, id=str(block), marks=[pytest.mark.slow] if block.slow else [])
    for page in PAGES
    for block in blocks_of(page)
    if block.language == "python"
]
_OF_EXTRAS = ("segmentation_models_pytorch", "transformers", "openvino", "onnxruntime")
_FILES = {
    "cvt-13.safetensors": "cvt_13",
    "deit_small.pth": "deit_small_patch16_224",
    "model_best.pth": "vil_ls_medium",
}
"""Files of weights that pages name, and a model with their layout: here the weights are random."""

_RUN = "output/RUN/model_best.pth.tar"
"""The checkpoint of a run that pages name."""


_PHOTO = Path(sklearn.datasets.__file__).parent / "images" / "flower.jpg"


def bring_files(code, folder):
    if '"photo.jpg"' in code:
        shutil.copy(_PHOTO, folder / "photo.jpg")
    for name, model in _FILES.items():
        if f'"{name}"' in code:
            save = save_file if name.endswith(".safetensors") else torch.save
            save(timm.create_model(model).state_dict(), folder / name)
    if f'"{_RUN}"' in code:
        settings = asdict(TrainConfig(model="test_vil_ls", num_classes=10, img_size=32))
        state = timm.create_model("test_vil_ls", num_classes=10, img_size=32).state_dict()
        (folder / _RUN).parent.mkdir(parents=True)
        torch.save({"epoch": 0, "args": settings, "state_dict": state}, folder / _RUN)


@pytest.mark.filterwarnings("ignore")  # of other libraries, and of weights that start anew
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block, tmp_path, monkeypatch):
    """By itself, but for the three imports that every page begins with."""
    for name in _OF_EXTRAS:
        if name in block.code:
            pytest.importorskip(name, reason="needs an extra")
    monkeypatch.chdir(tmp_path)
    bring_files(block.code, tmp_path)
    run(block, {"__name__": "page", "timm": timm, "torch": torch, "vit_ls": vit_ls})


def test_each_client_has_its_block():
    text = "\n".join(block.code for block in blocks_of("docs/dense.md") + blocks_of("docs/hub.md"))
    clients = ["FasterRCNN", "smp.Unet", "TimmBackbone", "TimmWrapper", "features_only=True"]
    assert [client for client in clients if client not in text] == []
