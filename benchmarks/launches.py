"""Count the kernels that a forward pass launches on a GPU, without one.

    python -m benchmarks.launches                                # three models and their peers
    python -m benchmarks.launches --models cvt_ls_21 --by op     # or --by module: where they are

What counts are the operators on a fake CUDA device that are no views: with few images, a GPU spends
its time on launching them. "parts" is float32, with attention as its products and softmax. "fused"
is autocast to bfloat16, whose casts count, with attention as the one kernel that PyTorch has.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.subjects import SUBJECTS, Subject, create
from vit_ls.style import markdown_table

DEFAULT = "vil_ls_medium swin_small cvt_ls_21 cvt_21 cst_vit_small_patch16 deit_small"
How = Literal["parts", "fused"]

_NO_KERNEL = {
    "prim::device",
    "aten::_unsafe_view",
    "aten::as_strided_",
    "aten::empty.memory_format",
    "aten::new_empty",
}
_COPIES = ("clone", "copy_", "cat", "stack", "_to_copy", "repeat", "constant_pad_nd")


class Launch(NamedTuple):
    """A kernel: its operator, and the module that ran it, without the numbers of its layer."""

    op: str
    module: str


def launches(subject: Subject, how: How = "parts", size: int = 224) -> Counter[Launch]:
    """What one forward of two images launches.

    Args:
        subject: A model.
        how: "parts" or "fused".
        size: Side of the images, in pixels.
    """
    return launches_of(create(subject, size, "meta").eval(), (2, 3, size, size), how)


def launches_of(model: nn.Module, shape: tuple[int, ...], how: How) -> Counter[Launch]:
    """What a forward of a model on the meta device launches for an input of this shape."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), ExitStack() as stack:
        model.to_empty(device="cuda")
        images = torch.empty(shape, device="cuda")
        counted = _Counted(stack.enter_context(_place_in(model)))
        if how == "fused":
            stack.enter_context(_autocast())
            stack.enter_context(_OneKernel())
        else:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        with counted:
            model(images)
    return counted.found


class _Counted(TorchDispatchMode):
    def __init__(self, place: Callable[[], str]) -> None:
        super().__init__()
        self.found: Counter[Launch] = Counter()
        self.place = place

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name: str = func.name()
        if not func.is_view and name not in _NO_KERNEL:
            self.found[Launch(name.removeprefix("aten::").split(".")[0], self.place())] += 1
        return func(*args, **(kwargs or {}))


class _OneKernel(TorchFunctionMode):
    """Attention as the kernel that takes any mask; without a GPU, PyTorch would not choose one."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is scaled_dot_product_attention:
            return _efficient(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _efficient(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **_: Any
) -> Tensor:
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:  # as PyTorch does for that kernel
            attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(
                ~attn_mask, -torch.inf
            )
        attn_mask = attn_mask.expand(*q.shape[:3], k.shape[2])
    op = torch.ops.aten._scaled_dot_product_efficient_attention
    out: Tensor = op(q, k, v, attn_mask, compute_log_sumexp=False)[0]
    return out


@contextmanager
def _autocast() -> Iterator[None]:
    """As `torch.autocast("cuda", torch.bfloat16)`, which is off where there is no GPU."""
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()


@contextmanager
def _place_in(model: nn.Module) -> Iterator[Callable[[], str]]:
    """What tells, within the `with` block, the module whose forward runs."""
    running = [""]
    handles = []
    for name, module in model.named_modules():
        layer = re.sub(r"\b\d+\b", "*", name)
        handles += [
            module.register_forward_pre_hook(lambda *_, layer=layer: running.append(layer)),
            module.register_forward_hook(lambda *_: running.pop() and None),
        ]
    try:
        yield lambda: running[-1]
    finally:
        for handle in handles:
            handle.remove()


def _table(names: Sequence[str], size: int) -> str:
    rows = []
    for name in names:
        found = [launches(SUBJECTS[name], how, size) for how in get_args(How)]
        copies = sum(n for one, n in found[0].items() if one.op in _COPIES)
        rows.append([name, str(found[0].total()), str(copies), str(found[1].total())])
    return markdown_table(["model", "parts", "of these copies", "fused"], rows, numbers=(1, 2, 3))


def _parts(name: str, by: str, size: int) -> str:
    """A row for each operator or module."""
    found: dict[str, list[int]] = {}
    for column, how in enumerate(get_args(How)):
        for one, n in launches(SUBJECTS[name], how, size).items():
            found.setdefault(getattr(one, by) or "model", [0, 0])[column] += n
    rows = [
        [what, *map(str, counts)] for what, counts in sorted(found.items(), key=lambda x: -x[1][0])
    ]
    return markdown_table([f"{by} of {name}", *get_args(How)], rows, numbers=(1, 2))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser("benchmarks.launches", description="Count a GPU's kernels.")
    add = parser.add_argument
    add("--models", nargs="+", choices=SUBJECTS, default=DEFAULT.split(), metavar="MODEL")
    add(
        "--by", choices=Launch._fields, help="one table for each model, of its operators or modules"
    )
    add("--size", type=int, default=224, help="side of the images, in pixels")
    args = parser.parse_args(argv)
    tables = (
        [_table(args.models, args.size)]
        if args.by is None
        else [_parts(name, args.by, args.size) for name in args.models]
    )
    sys.stdout.write("\n\n".join(tables) + "\n")


if __name__ == "__main__":
    main()
