"""How this process computes: set once, before and after it knows its device."""

import importlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from vit_ls.config import ConfigError, DataConfig
from vit_ls.errors import blamed_on


def import_backends(modules: Sequence[str] | None) -> None:
    """Import modules that make a device known to torch.

    Raises:
        ConfigError: One cannot be imported.
    """
    for name in modules or ():
        # A backend's start may fail in any way: a driver, a library, a device that is not there.
        with blamed_on(f"--device-modules {name} cannot be imported", ConfigError):
            importlib.import_module(name)


def set_precision(config: DataConfig, device: torch.device) -> None:
    """Set the precision of float32 products, and whether cuDNN looks for the fastest convolution.

    "highest" is float32 in convolutions too, where torch itself takes TF32. On a GPU the default is
    "high", as in timm's scripts; elsewhere torch's own stands.
    """
    on_gpu = device.type == "cuda"
    precision = config.float32_matmul_precision or ("high" if on_gpu else None)
    if precision is not None:
        if hasattr(torch.backends, "fp32_precision"):
            # what an imported module asked for would outlast the switches below
            of_cpu: Any = torch.backends.mkldnn
            for switch in (torch.backends, torch.backends.cudnn, of_cpu.conv, of_cpu.rnn):
                switch.fp32_precision = "none"
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = precision != "highest"
    torch.backends.cudnn.benchmark = on_gpu and config.cudnn_benchmark


def autocast(amp: bool | None, dtype: str, device: torch.device) -> Any:
    """Context of mixed precision: as asked for, or on a GPU."""
    if mixes_precision(amp, device):
        return torch.autocast(device.type, dtype=getattr(torch, dtype))
    return nullcontext()


def mixes_precision(amp: bool | None, device: torch.device) -> bool:
    """Whether precision is mixed: where it is asked for, or on a GPU."""
    return device.type == "cuda" if amp is None else amp
