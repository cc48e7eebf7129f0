"""The models of this package, for tests that hold for each of them."""

import math

import timm

MODELS = [
    name
    for name in timm.list_models()
    if timm.model_entrypoint(name).__module__.startswith("vit_ls.")
]
SMALL = [name for name in MODELS if name.startswith("test_")]
"""One of each family, small enough to compute with."""

CUT = ("test_cvt",)
"""Those that cut an image as their released code does, where the others pad it."""


def smallest(name: str) -> int:
    """Side of the smallest image that a model takes, in pixels."""
    return 3 if name in CUT else 1


def map_side(name: str, side: int, reduction: int) -> int:
    """Side of a map in tokens, of an image of `side` pixels."""
    return math.ceil((4 * ((side + 1) // 4) if name in CUT else side) / reduction)


def pixels_read(name: str, side: int) -> int:
    """How many of `side` pixels the first embedding reads."""
    return min(side, 4 * ((side + 1) // 4) + 1) if name in CUT else side
