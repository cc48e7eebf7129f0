"""What a model attends to, taken from its own forward pass.

    with vit_ls.record(model) as records:
        model(images)
    records["stages.0.blocks.0.attn"].shares()

While it is on, the layers of that model go through explicit products, which have the weights at
hand, and hand them over; nothing is computed a second time, and outputs agree to float rounding.
Off, it costs nothing. What other threads or other models compute meanwhile is not touched.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vit_ls.attention import KINDS
from vit_ls.attention.recorded import Attention, Part, spread
from vit_ls.ops.rules import Weights, recording

__all__ = ["Attention", "Part", "record", "spread"]

_RECORDED = {kind.layer: kind.recorded for kind in KINDS}
_LAYERS = tuple(_RECORDED)


@contextmanager
def record(model: nn.Module) -> Iterator[dict[str, Attention]]:
    """Collect the attention weights of all layers of a model within a `with` block.

    The dict is filled by each forward pass, by the names of the layers in their order; a later
    pass takes the place of an earlier one. Weights are kept as they are, so that the largest layers
    of a large image take much memory. Passes of other threads, as those that `nn.DataParallel`
    starts on several devices, are not recorded.

    Args:
        model: With attention layers of this package, not compiled and not scripted.

    Raises:
        ValueError: it has no such layers, or some that cannot be recorded, or it is compiled; or
            at the end of the block, no pass of it was recorded.
    """
    layers = _layers(model)
    records: dict[str, Attention] = {}
    now: list[tuple[Attention, ExitStack]] = []
    here = threading.get_ident()

    def enter(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != here:
            return
        layer = _recorded(module)(name, module, *_grid_and_tokens(module, args))
        sinks = ExitStack()
        sinks.enter_context(recording(lambda kind, weights: _take(layer, kind, weights)))
        now.append((layer, sinks))

    def leave(module: nn.Module, _: object, output: object) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != here:
            return
        if not now or now[-1][0].layer is not module:
            return
        layer, sinks = now.pop()
        sinks.close()
        if output is not None:  # None where it failed
            records[layer.name] = layer

    with ExitStack() as stack:
        for name, module in layers.items():
            before = module.register_forward_pre_hook(
                lambda module, args, name=name: enter(name, module, args)
            )
            stack.callback(before.remove)
            stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        yield records
    if not records:
        raise ValueError(
            "A recording must hold a forward pass of its model, uncompiled and in its own thread, "
            f"got none of {type(model).__name__}."
        )


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers to record, by name."""
    layers: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _LAYERS) or _says_itself(module)
    }
    if not layers:
        raise ValueError(
            "model must have attention layers of vit_ls that can be recorded, "
            f"got none in {type(model).__name__}."
        )
    forwards = [layer.forward for layer in _LAYERS]
    others = (m for m in layers.values() if not _says_itself(m))
    other = next((m for m in others if type(m).forward not in forwards), None)
    if other is not None:  # of rows of tokens: not called as those of grids are
        names = ", ".join(layer.__name__ for layer in _LAYERS)
        raise ValueError(f"What can be recorded are {names}, got {type(other).__name__}.")
    compiled = next((m for m in model.modules() if _is_compiled(m)), None)
    if compiled is not None:
        raise ValueError(
            "model must not be compiled, since a graph hands no weights over: record it before, "
            f"or a copy; got a compiled {type(getattr(compiled, '_orig_mod', compiled)).__name__}."
        )
    return layers


def _says_itself(module: nn.Module) -> bool:
    """Whether a layer of tokens in a row says what is recorded of it, and on which grid."""
    return getattr(type(module), "recorded", None) is not None


def _recorded(module: nn.Module) -> type[Attention]:
    if _says_itself(module):
        own: type[Attention] = type(module).recorded  # type: ignore[attr-defined]
        return own
    return next(_RECORDED[kind] for kind in _LAYERS if isinstance(module, kind))


def _grid_and_tokens(module: Any, args: tuple[Any, ...]) -> tuple[tuple[int, int], int]:
    """(H, W) and G of what a layer is handed."""
    if _says_itself(module):
        found: tuple[tuple[int, int], int] = module.grid_and_tokens(args[0])
        return found
    x, g = args[0], args[1]
    return (x.shape[1], x.shape[2]), 0 if g is None else g.shape[1]


def _is_compiled(module: nn.Module) -> bool:
    """Whether by either way of PyTorch, with a layer in it that could be recorded."""
    compiled = (
        "_orig_mod" in dict(module.named_children()) or module._compiled_call_impl is not None
    )
    return compiled and any(
        isinstance(inner, _LAYERS) or _says_itself(inner) for inner in module.modules()
    )


def _take(layer: Attention, kind: Weights, weights: Tensor) -> None:
    weights = weights.detach()
    if kind == "tokens":
        layer.tokens.append(weights)
    else:
        setattr(layer, kind, weights)
