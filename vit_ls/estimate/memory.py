"""The memory of an update, counted on fake tensors: sizes and lifetimes without values."""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from vit_ls.config import TrainConfig
from vit_ls.job import Ranks
from vit_ls.ops import rules, use_implementation
from vit_ls.train.recipe import make_optimizer, make_task
from vit_ls.train.update import Updater

_CPU = torch.device("cpu")


class Memory(NamedTuple):
    """Bytes that an update takes of one device.

    Attributes:
        state: Weights, gradients, what the optimiser keeps, the average, what processes exchange.
        activations: What the batch adds at the peak of an update.
        per_image: Of that, what one image more adds.
        batch_size: Images of the batch.
    """

    state: int
    activations: int
    per_image: float
    batch_size: int

    @property
    def total(self) -> int:
        """At the peak of an update."""
        return self.state + self.activations

    def largest_batch(self, capacity: float, *, even: bool) -> int:
        """The most images per batch that fit; 0 where none does.

        Args:
            capacity: In bytes.
            even: Whether only even numbers count.
        """
        images = int(self.batch_size + (capacity - self.total) // self.per_image)
        return max(images - (images % 2 if even else 0), 0)


def memory_of(
    model: nn.Module,
    teacher: nn.Module | None,
    size: tuple[int, int, int],
    config: TrainConfig,
    *,
    processes: int = 1,
    on_gpu: bool = True,
) -> Memory:
    """What an update needs, found by running two on fake tensors.

    Args:
        model: Ready to be trained, on the meta device; it is taken.
        teacher: For distillation, likewise, or None.
        size: Channels, height and width of an image, in pixels.
        config: The settings of the run.
        processes: In several, gradients are also kept as they are exchanged.
        on_gpu: Compute as a GPU does, with mixed precision unless it is off; else as this CPU.
    """
    config = replace(config, amp=on_gpu if config.amp is None else config.amp)
    fake, live = FakeTensorMode(allow_non_fake_inputs=True), _Live()
    with ExitStack() as modes:
        modes.enter_context(fake)
        model = _with_fakes(model, live)
        teacher = None if teacher is None else _with_fakes(teacher, live)
        fake.allow_non_fake_inputs = False
        if on_gpu:
            modes.enter_context(_as_on_gpu())
        modes.enter_context(live)
        task = make_task(model, teacher, config, _CPU)
        live.add(task.state_dict(keep_vars=True).values())
        trained = [p for p in task.parameters() if p.requires_grad]
        optimizer = make_optimizer(task.get_trainable_module() or model, config, processes)
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        beside = sum(p.nbytes for p in trained) if processes > 1 else 0
        if config.model_ema and not config.model_ema_force_cpu:
            beside += sum(value.nbytes for value in model.state_dict().values())
        state = live.bytes + beside
        optimizer.zero_grad()
        updater = Updater(task, optimizer, config, Ranks(_CPU))
        peaks = [
            beside + live.peak_of(partial(_update, updater, images, size, config))
            for images in (config.batch_size, 2 * config.batch_size)
        ]
    per_image = (peaks[1] - peaks[0]) / config.batch_size
    return Memory(state, max(peaks[0] - state, 0), per_image, config.batch_size)


def _with_fakes(module: nn.Module, live: "_Live") -> Any:
    """A module of the meta device with fake tensors of a CPU; its forward gets no value of them."""
    there: Any = module.to_empty(device="cpu")
    there.to = lambda *_, **__: there  # torch cannot move fake parameters
    there.register_forward_pre_hook(lambda *_: live.answer(False))
    there.register_forward_hook(lambda *_: live.answer(True))
    return there


def _update(updater: Updater, images: int, size: tuple[int, int, int], config: TrainConfig) -> None:
    """One update, of two batches where gradients are added up, with the next batch at hand."""
    count = min(config.grad_accum_steps, 2)
    batches = [_batch(images, size, config) for _ in range(count + 1)]
    updater(iter(batches[:count]), count)


def _batch(images: int, size: tuple[int, int, int], config: TrainConfig) -> tuple[Tensor, Tensor]:
    images *= max(config.aug_splits, 1)
    if config.mixes:
        return torch.empty(images, *size), torch.empty(images, config.num_classes or 0)
    return torch.empty(images, *size), torch.empty(images, dtype=torch.long)


class _Live(TorchDispatchMode):
    """Counts the bytes of all tensors that are made within, and still there."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._known: dict[int, Any] = {}
        self._answers = True

    def answer(self, whether: bool) -> None:
        """Whether to answer who asks for a value, as an optimiser does; a model is to have none."""
        self._answers = whether

    def peak_of(self, run: Callable[[], object]) -> int:
        """The most bytes at a time while `run` runs, with what was there before."""
        gc.collect()
        self.peak = self.bytes
        run()
        return self.peak

    def add(self, values: Iterable[Any]) -> None:
        """Count the storages of these, each once."""
        for value in values:
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                if id(storage) not in self._known:
                    ended = partial(self._end, id(storage), storage.nbytes())
                    self._known[id(storage)] = weakref.ref(storage, ended)
                    self.bytes += storage.nbytes()
        self.peak = max(self.peak, self.bytes)

    def _end(self, key: int, size: int, _: object) -> None:
        del self._known[key]
        self.bytes -= size

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A fake tensor has no value. Those that an update asks for: whether the loss is finite, how
        # many steps an optimiser has made, and whether a teacher's images are normalised alike.
        if self._answers and func is torch.ops.aten._local_scalar_dense.default:
            return 1
        if self._answers and func is torch.ops.aten.equal.default:
            return False
        result = func(*args, **(kwargs or {}))
        self.add(result if isinstance(result, tuple | list) else (result,))
        return result


@contextmanager
def _as_on_gpu() -> Iterator[None]:
    """Let the CPU's fake tensors be computed as a GPU's are, whose own need a driver.

    The functions are replaced, and not handled by a mode: no mode is on where a checkpoint computes
    again in the backward pass.
    """
    with ExitStack() as replaced:
        replaced.enter_context(use_implementation(windows="tiled", attention="fused"))
        replaced.enter_context(patch.object(rules, "MASK_GRADIENT_DEVICES", {"cpu"}))
        for owner, name in _IN_FLOAT32:
            replaced.enter_context(patch.object(owner, name, _in_float32(getattr(owner, name))))
        replaced.enter_context(patch.object(F, "scaled_dot_product_attention", _attention))
        yield


_IN_FLOAT32 = ((F, "layer_norm"), (F, "group_norm"), (Tensor, "softmax"), (Tensor, "log_softmax"))
"""What mixed precision computes in float32 on a GPU, and not on a CPU."""


def _in_float32(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def computed(*args: Any, **kwargs: Any) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            args = tuple(_cast(value, torch.float32) for value in args)
            kwargs = {name: _cast(value, torch.float32) for name, value in kwargs.items()}
        return function(*args, **kwargs)

    return computed


def _cast(value: Any, dtype: torch.dtype) -> Any:
    floats = isinstance(value, Tensor) and value.is_floating_point()
    return value.to(dtype) if floats else value


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *_: Any, **__: Any
) -> Tensor:
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q, k, v, attn_mask = (_cast(one, dtype) for one in (q, k, v, attn_mask))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype)
    out: Tensor = _FusedAttention.apply(q, k, v, attn_mask)
    return out


class _FusedAttention(torch.autograd.Function):
    """The sizes of PyTorch's memory-efficient kernel: a number for each row instead of its scores.

    The gradient of a mask is made for each image and head, and added up after.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, mask, out, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, _grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *_ = ctx.saved_tensors
        scores = (*q.shape[:-1], k.shape[-2])
        of_mask = q.new_empty(scores) if ctx.needs_input_grad[3] else None
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), of_mask
