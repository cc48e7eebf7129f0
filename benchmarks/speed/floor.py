"""The floor of a model's time: that of its matrix products alone, each by the fastest library."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.speed.measure import in_turn
from benchmarks.speed.subjects import Subject, create
from vit_ls.count import explicit_attention

aten = torch.ops.aten


class Product(NamedTuple):
    """[b,m,k] times [b,k,n]."""

    b: int
    m: int
    k: int
    n: int


class _Record(TorchDispatchMode):
    """Counts the products of what runs under it; a convolution without groups is one, too."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet in (aten.mm, aten.bmm):
            self._matrices(args[0], args[1])
        elif packet in (aten.addmm, aten.baddbmm):
            self._matrices(args[1], args[2])
        elif packet is aten.convolution and args[8] == 1:
            self.found[_of_convolution(output, args[1])] += 1
        elif packet is aten.convolution_backward and args[9] == 1:
            m, k, n = _of_convolution(args[0], args[2])[1:]
            wanted = args[10]
            if wanted[0]:
                self.found[Product(1, m, n, k)] += 1
            if wanted[1]:
                self.found[Product(1, n, m, k)] += 1
        return output

    def _matrices(self, x: Tensor, y: Tensor) -> None:
        b = x.shape[0] if x.ndim == 3 else 1
        self.found[Product(b, x.shape[-2], x.shape[-1], y.shape[-1])] += 1


def _of_convolution(output: Tensor, weight: Tensor) -> Product:
    """As one product over what the kernel covers: [B*H*W,k*k*Cin] times [.,Cout]."""
    return Product(1, output.numel() // output.shape[1], weight[0].numel(), output.shape[1])


def products_of(subject: Subject, mode: str, batch: int, size: int) -> Counter[Product]:
    """The products of a forward or a training step, found without computing any."""
    with explicit_attention():
        model = create(subject, size, "meta").train(mode == "step")
        images = torch.empty(batch, 3, size, size, device="meta")
        with _Record() as record:
            loss = model(images).sum()
            if mode == "step":
                loss.backward()
    return record.found


def seconds_of(
    products: Counter[Product], setting: str, repeats: int = 3, *, processor: bool = False
) -> float:
    """The least time of all products, one after the other; `processor` as for `in_turn`.

    In float32 each is taken by MKL or, where it is one product, by oneDNN, whichever is faster; in
    "medium" and bfloat16 PyTorch takes oneDNN.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if setting == "medium" else "highest")
    dtype = torch.bfloat16 if setting.endswith("bf16") else torch.float32
    try:
        with torch.inference_mode():
            return sum(n * _seconds(p, dtype, repeats, processor) for p, n in products.items())
    finally:
        torch.set_float32_matmul_precision(before)


def _seconds(product: Product, dtype: torch.dtype, repeats: int, processor: bool) -> float:
    b, m, k, n = product
    x, y = torch.randn(b, m, k, dtype=dtype), torch.randn(b, n, k, dtype=dtype)
    ways: list[Callable[[], Tensor]] = [lambda: x @ y.mT]
    if b == 1:
        ways = [lambda: x[0] @ y[0].T]
        if dtype == torch.float32:
            packed, weight = x[0].to_mkldnn(), y[0].to_mkldnn()
            linear: Any = torch._C._nn.mkldnn_linear
            ways.append(lambda: linear(packed, weight, None))
    runs = {str(number): way for number, way in enumerate(ways)}
    found = in_turn(runs, repeats, "cpu", processor=processor)
    return min(times.least for times in found.values())
