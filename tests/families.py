"""The models of this package, for tests that hold for each of them."""

import timm

MODELS = [
    name
    for name in timm.list_models()
    if timm.model_entrypoint(name).__module__.startswith("vit_ls.")
]
SMALL = [name for name in MODELS if name.startswith("test_")]
"""One of each family, small enough to compute with."""
