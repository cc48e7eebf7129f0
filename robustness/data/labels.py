"""Class lists: ImageNet's WNIDs, the 200 of A and R, ReaL's labels, ImageNet-9's mapping."""

import json
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from timm.data import ImageNetInfo

_TIMM = resources.files("timm.data") / "_info"
_OURS = Path(__file__).parent / "tables"


@cache
def wnid_to_index() -> dict[str, int]:
    """The 1000 WordNet ids in the order of the classes."""
    return {wnid: i for i, wnid in enumerate(ImageNetInfo("imagenet-1k").label_names())}


@cache
def subset_indices(subset: str) -> tuple[int, ...]:
    """The 200 classes of ImageNet-A ("a") or ImageNet-R ("r"), rising."""
    text = (_TIMM / f"imagenet_{subset}_indices.txt").read_text()
    return tuple(int(line) for line in text.split())


@cache
def real_labels() -> dict[str, frozenset[int]]:
    """ReaL's labels (arXiv:2006.07159) by the stem of the validation file; 3163 sets are empty."""
    lists = json.loads((_TIMM / "imagenet_real_labels.json").read_text())
    return {f"ILSVRC2012_val_{i:08d}": frozenset(labels) for i, labels in enumerate(lists, start=1)}


@cache
def imagenet9_classes() -> torch.Tensor:
    """ImageNet-9's class of each of the 1000, -1 where there is none: [1000]."""
    table = json.loads((_OURS / "imagenet9_ranges.json").read_text())
    classes = torch.full((1000,), -1)
    for coarse, entry in enumerate(table["classes"]):
        for first, last in entry["ranges"]:
            classes[first : last + 1] = coarse
    return classes
