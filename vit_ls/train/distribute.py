"""A task in several processes: one gradient, one set of batch norm statistics, evaluation alone."""

from typing import Any

import torch
import torch.distributed as dist
from timm.task import TrainingTask
from timm.utils import distribute_bn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vit_ls.config import TrainConfig
from vit_ls.job.ranks import Ranks


def distribute(task: TrainingTask, config: TrainConfig, ranks: Ranks) -> None:
    """Let the processes add up their gradients from here on; all must call it together."""
    if not ranks.distributed:
        return
    ranks.meet()
    on_gpu = ranks.device.type == "cuda"
    task.prepare_distributed(device_ids=[ranks.device.index] if on_gpu else None)
    wrapped: Any = task.get_trainable_module()
    # An attribute in every version of torch, while newer ones warn of the argument. It is about the
    # buffers before each forward pass: at the start all have the primary's either way.
    wrapped.broadcast_buffers = not config.no_ddp_bb
    if not on_gpu:
        wrapped.register_comm_hook(None, _average)


def share_norms(task: TrainingTask, config: TrainConfig, ranks: Ranks) -> None:
    """Give the model and its average the same batch norm statistics in all processes."""
    if not ranks.distributed or not config.dist_bn:
        return
    for ema in (False, True):
        module = task.get_trainable_module(ema=ema)
        if module is not None:
            distribute_bn(module, ranks.world_size, config.dist_bn == "reduce")


def eval_model(task: TrainingTask, *, ema: bool) -> nn.Module | None:
    """The model to evaluate, or its average; processes need not evaluate in step.

    Out of its wrapper, which would broadcast the buffers before each batch of an evaluation too.
    """
    model = task.get_eval_model(ema=ema)
    return model.module if isinstance(model, DistributedDataParallel) else model


def _average(_state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The mean of a bucket of gradients over the processes, for gloo.

    As DDP does it, but called from Python: an error of gloo's then shows where it arose, which is
    all that tells a lost process from an error of the model.
    """
    gradients = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(gradients)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done
