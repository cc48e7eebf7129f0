"""What the installed package does away from its checkout; run by .ci/wheel."""

import importlib.metadata
import importlib.util
import pkgutil
import subprocess
import sys

import timm
import torch

import vit_ls

# what only the extra `train` brings
_OPTIONAL = {"matplotlib", "tqdm"}


def check(holds: bool, what: str) -> None:
    """Print what was looked at, and stop where it does not hold."""
    print(f"{'ok' if holds else 'NOT'}: {what}")  # noqa: T201  a script
    if not holds:
        sys.exit(1)


def unexpected_import_errors() -> list[str]:
    """Modules of the package that do not import, but for the extras' own packages."""
    failed = []
    for module in pkgutil.walk_packages(vit_ls.__path__, "vit_ls."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in _OPTIONAL:
                failed.append(f"{module.name}: {error}")
    return failed


where = str(vit_ls.__file__)
check(where.startswith(sys.prefix), f"vit_ls is the installed one: {where}")
version = importlib.metadata.version("vit-ls")
check(version == vit_ls.__version__, f"one version: {version}")
check(not (errors := unexpected_import_errors()), f"every module imports {errors}")
logits = timm.create_model("cvt_ls_13", num_classes=10)(torch.randn(1, 3, 224, 224))
check(logits.shape == (1, 10), "create_model")
maps = timm.create_model("vil_ls_tiny", features_only=True)(torch.randn(1, 3, 97, 64))
sizes = [tuple(m.shape[2:]) for m in maps]
check(sizes == [(25, 16), (13, 8), (7, 4), (4, 2)], f"features_only: maps of {sizes}")
words = subprocess.run(
    [sys.executable, "-m", "vit_ls"], check=True, capture_output=True, text=True
).stdout
says = "python train.py" in words and "not installed" in words
check(says, "python -m vit_ls says what is where")
check(importlib.util.find_spec("robustness") is None, "robustness stays in the checkout")
