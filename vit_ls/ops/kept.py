"""What inference would compute anew of the same numbers, kept while they stay the same.

A bias that is looked up in a table, and the masks of a grid, are the same for each image. They are
kept for inference on a CPU alone, beside a copy of what they were made of, and used again only
where that is equal number by number. So nothing is ever stale, however weights are changed, and
training, graphs, traces and exports compute as if nothing were kept. Nothing is kept on modules:
copies, pickles and state dicts know nothing of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.weak import WeakTensorKeyDictionary

from vit_ls.ops.rules import in_plain_inference

LARGEST = 2**20
"""Numbers in a result that is kept: 4 MB in float32. What is larger takes much longer to use."""


class _Kept(NamedTuple):
    make: Callable[..., Tensor]
    options: tuple[Any, ...]
    sources: tuple[Tensor, ...]
    """Copies."""
    result: Tensor


_results = WeakTensorKeyDictionary()


def kept(make: Callable[..., Tensor], sources: tuple[Tensor, ...], *options: Any) -> Tensor:
    """`make(*sources, *options)`, or the result of that before.

    The last result of the first source is kept as long as that tensor lives. It must not be written
    to.

    Args:
        make: A function of these alone.
        sources: Tensors; comparing them must cost less than `make`.
        *options: Anything that compares by ==.
    """
    if torch.compiler.is_compiling() or not all(map(in_plain_inference, sources)):
        return make(*sources, *options)
    if _get_current_dispatch_mode() is not None:  # somebody looks at what is computed
        return make(*sources, *options)
    found: _Kept | None = _results.get(sources[0])
    if (
        found is not None
        and found.make is make
        and found.options == options
        and all(map(_same, found.sources, sources))
    ):
        return found.result
    result = make(*sources, *options)
    if result.numel() <= LARGEST:
        copies = tuple(source.detach().clone() for source in sources)
        _results[sources[0]] = _Kept(make, options, copies, result)
    return result


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
