"""Class lists: ImageNet's WNIDs, those of A and R, ReaL's labels, mappings of other benchmarks."""

import json
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from timm.data import ImageNetInfo, RealLabelsImagenet

from vit_ls.config import ConfigError

_TIMM = resources.files("timm.data") / "_info"
_OURS = Path(__file__).parent / "tables"


@cache
def wnid_to_index() -> dict[str, int]:
    """The 1000 WordNet ids in the order of the classes."""
    return {wnid: i for i, wnid in enumerate(ImageNetInfo("imagenet-1k").label_names())}


@cache
def subset_indices(subset: str) -> tuple[int, ...]:
    """The 200 classes of ImageNet-A ("a"), ImageNet-R ("r") or ImageNet-O ("o"), rising."""
    if subset == "o":
        wnids = (_OURS / "imagenet_o_wnids.txt").read_text().split()
        return tuple(wnid_to_index()[wnid] for wnid in wnids)
    text = (_TIMM / f"imagenet_{subset}_indices.txt").read_text()
    return tuple(int(line) for line in text.split())


@cache
def real_labels() -> dict[str, frozenset[int]]:
    """ReaL's labels (arXiv:2006.07159) by the stem of the validation file; 3163 sets are empty."""
    names = RealLabelsImagenet(range(50_000)).real_labels
    return {Path(name).stem: frozenset(labels) for name, labels in names.items()}


@cache
def imagenet9_classes() -> torch.Tensor:
    """ImageNet-9's class of each of the 1000, -1 where there is none: [1000]."""
    table = json.loads((_OURS / "imagenet9_ranges.json").read_text())
    classes = torch.full((1000,), -1)
    for coarse, entry in enumerate(table["classes"]):
        for first, last in entry["ranges"]:
            classes[first : last + 1] = coarse
    return classes


@cache
def objectnet_classes() -> torch.Tensor:
    """ObjectNet's class of each of the 1000, -1 where there is none: [1000]."""
    table = json.loads((_OURS / "objectnet_classes.json").read_text())
    classes = torch.full((1000,), -1)
    for index, own in table.items():
        classes[int(index)] = own
    return classes


def objectnet_targets(names_of: dict[str, str]) -> dict[str, int]:
    """Class of each of ObjectNet's labels that ImageNet has too.

    Args:
        names_of: Label to the names of ImageNet's classes, divided by "; ", as released.

    Raises:
        ConfigError: A name is unknown, or the classes of a label are not one of ObjectNet's.
    """
    info = ImageNetInfo("imagenet-1k")
    indices: dict[str, set[int]] = {}
    for index in range(1000):
        indices.setdefault(info.index_to_description(index, detailed=False), set()).add(index)
    classes = objectnet_classes()
    targets = {}
    for label, names in names_of.items():
        own = {
            int(classes[index])
            for name in names.split("; ")
            for index in indices.get(name, ())
            if classes[index] >= 0
        }
        if len(own) != 1:
            raise ConfigError(f"ObjectNet's label {label} is no one class of ImageNet: {names}.")
        targets[label] = own.pop()
    return targets
