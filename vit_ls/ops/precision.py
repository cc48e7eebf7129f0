"""In what products of float32 are computed, whichever of PyTorch's switches said so."""

from typing import Literal

import torch

Precision = Literal["ieee", "tf32", "bf16"]
"""Exact, or with factors rounded to TF32 or to bfloat16."""

_PRECISIONS: dict[str, Precision] = {
    "none": "ieee",  # nobody asked for less
    "ieee": "ieee",
    "tf32": "tf32",
    "bf16": "bf16",
    "highest": "ieee",
    "high": "tf32",
    "medium": "bf16",
}


def precision_of_products(device: str) -> Precision:
    """In what a device multiplies matrices of float32, as PyTorch is told at present.

    `torch.get_float32_matmul_precision` cannot be asked: it raises where anybody has used the
    switches of PyTorch 2.9 (`torch.backends.fp32_precision` and those of the backends). Before 2.9
    there is nothing else.

    Args:
        device: Its type; for all but "cpu" the switch of CUDA counts.
    """
    if hasattr(torch.backends, "fp32_precision"):
        backend = torch.backends.mkldnn if device == "cpu" else torch.backends.cuda
        return _PRECISIONS[backend.matmul.fp32_precision]
    old = torch.get_float32_matmul_precision()
    return "tf32" if old == "medium" and device != "cpu" else _PRECISIONS[old]
