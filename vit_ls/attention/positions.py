"""Learned positions and tokens: initial values, no decay, and another size without a trace."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from timm.layers import trunc_normal_
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

Size = tuple[int, ...]


class Undecayed(nn.Module):
    """A module whose own parameters are tokens, or are added to tokens or scores.

    They start as a truncated normal (std 0.02), and weight decay leaves them out
    (`StagedTransformer.no_weight_decay`).
    """

    def reset_parameters(self) -> None:
        """Draw them anew."""
        for parameter in self.parameters(recurse=False):
            trunc_normal_(parameter, std=0.02)


class _Made(NamedTuple):
    source: Tensor
    """What it was resized from, before it was resized first."""
    size: Size
    result: Tensor
    """What came of it: if the parameter is no longer that, the source is out of date."""


_made = WeakTensorKeyDictionary()


def resized(
    parameter: nn.Parameter, old: Size, new: Size, resize: Callable[[Tensor, Size, Size], Tensor]
) -> nn.Parameter:
    """A parameter of the size `new`, made of one of the size `old`; of the same size, itself.

    One that was resized before, and has not changed since, is made of what it was then made of: to
    resize it there and back changes no bit, and to resize it twice blurs it once.

    Args:
        parameter: To resize; not changed.
        old: Its size.
        new: The size wanted.
        resize: Makes the table of a size from that of another.
    """
    if new == old:
        return parameter
    source, size = parameter.detach(), old
    made: _Made | None = _made.get(parameter)
    if made is not None and _same(made.result, source):
        source, size = made.source, made.size
    table = source if new == size else resize(source, size, new)
    table = table.clone(memory_format=torch.contiguous_format)
    result = nn.Parameter(table, requires_grad=parameter.requires_grad)
    if new != size:
        _made[result] = _Made(source.clone(), size, table.clone())
    return result


def _same(a: Tensor, b: Tensor) -> bool:
    alike = a.dtype == b.dtype and a.device == b.device and a.shape == b.shape
    return alike and not a.is_meta and torch.equal(a, b)
