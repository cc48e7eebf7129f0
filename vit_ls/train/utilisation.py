"""Model FLOPs utilisation: the share of a GPU's peak that the model's own arithmetic makes up.

As PaLM defines it (arXiv:2204.02311, appendix B): what recomputing activations adds is not counted.
"""

import copy
import logging
import warnings
from collections.abc import Callable

import torch
from torch import nn

from vit_ls.config import TrainConfig

_logger = logging.getLogger(__name__)

# Teraflops of bfloat16 and float16 products on dense matrices, accumulated in float32, by the name
# that the driver gives. A partition (MIG) or another model of the same family has another name, and
# so no figure. From NVIDIA's data sheets of each product, most of which print twice as many, for
# sparse matrices: "NVIDIA H200 Tensor Core GPU" 1979, "NVIDIA GH200 Grace Hopper Superchip" 1979,
# "NVIDIA L40S" 733, "NVIDIA DGX B200" 36 000 for eight. The RTX 5090's stands in "NVIDIA RTX
# Blackwell GPU Architecture", appendix A, the MI300X's in "AMD Instinct MI300X Accelerator".
PEAKS = {
    "AMD Instinct MI300X": 1307.4,
    "NVIDIA A10": 125.0,
    "NVIDIA A30": 165.0,
    "NVIDIA A100-PCIE-40GB": 312.0,
    "NVIDIA A100 80GB PCIe": 312.0,
    "NVIDIA A100-SXM4-40GB": 312.0,
    "NVIDIA A100-SXM4-80GB": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100 80GB HBM3": 989.0,
    "NVIDIA H200": 989.0,
    "NVIDIA GH200 480GB": 989.0,
    "NVIDIA GH200 144G HBM3e": 989.0,
    "NVIDIA B200": 2250.0,
    "NVIDIA L4": 121.0,
    "NVIDIA L40S": 362.0,
    "NVIDIA GeForce RTX 5090": 209.5,
}


def utilisation(
    model: nn.Module, size: tuple[int, int], config: TrainConfig, device: torch.device
) -> Callable[[float], float] | None:
    """What turns images per second of one process into a share of its device's peak.

    Args:
        model: The one that is trained.
        size: Height and width of its images, in pixels.
        config: The peak is known for mixed precision, the model's work for plain training: a
            teacher or a frozen part would make it another.
        device: Of the model.

    Returns:
        None where the peak or the work is not known.
    """
    peak = PEAKS.get(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    if peak is None or why_unknown(config):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tracing, and of importing fvcore
            from vit_ls.count import count_flops

            forward = count_flops(_on_cpu(model), size)
    # Tracing a model of timm's may fail in any way; the number is then withheld.
    except Exception as error:
        _logger.info("mfu is not shown: %s", " ".join(str(error).split())[:200])
        return None
    per_image = training_flops(forward)
    return lambda images_per_second: images_per_second * per_image / (peak * 1e12)


def why_unknown(config: TrainConfig) -> str | None:
    """Why the work of an image, or the peak, is not that of plain training; None where it is."""
    if config.amp is False:
        return "the peaks are those of mixed precision, and --no-amp turns it off"
    if config.freeze or config.kd_model_name:
        setting = "--freeze" if config.freeze else "--kd-model-name"
        return f"the work of an image is not known with {setting}"
    return None


def training_flops(forward: int) -> int:
    """Operations of training on one image, from the multiply-adds of its forward pass.

    A multiply-add is two operations, and the backward pass makes two products of each one.
    """
    return 3 * 2 * forward


def _on_cpu(model: nn.Module) -> nn.Module:
    """A copy of a model for evaluation, made without any more memory of its device."""
    memo: dict[int, object] = {
        id(p): nn.Parameter(p.detach().cpu(), requires_grad=False) for p in model.parameters()
    }
    memo |= {id(buffer): buffer.detach().cpu() for buffer in model.buffers()}
    return copy.deepcopy(model, memo).float().eval()
