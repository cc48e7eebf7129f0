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
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vit_ls.grid import num_windows, partition, partition_halo
from vit_ls.layers import CompositeSliceAttention, FullAttention, LongShortAttention
from vit_ls.ops.recording import Kind, recording

Part = Literal["window", "projected", "global", "grid", "slices"]
"""Of a query's attention: on tokens of its window or slice, on projected tokens, on global tokens;
on the whole grid (full attention); and on slices, which have a softmax of their own."""

_LAYERS = (LongShortAttention, FullAttention, CompositeSliceAttention)


@dataclass
class Attention:
    """The attention weights of one layer in one forward pass, detached.

    B images, h heads, a grid of H x W tokens, R projected tokens, G global tokens, N windows of T
    tokens with K keys, S slices.
    """

    name: str
    """Of the layer in the model."""
    layer: nn.Module
    grid: tuple[int, int]
    """(H, W) in tokens."""
    num_global: int
    """G."""
    projection: Tensor | None = None
    """P, of each projected token a softmax over the grid [B,h,R,H*W]."""
    windows: Tensor | None = None
    """[B,h,N,T,R+G+K]: of each token of a window, its projected, global and window keys."""
    tokens: list[Tensor] = field(default_factory=list)
    """In the order of the forward pass: of full attention [B,h,G+H*W,G+keys]; of long-short
    attention without a window [B,h,H*W,R+G]; then of its global tokens [B,h,G,G+H*W]; of composite
    slices [B,h,S,S]."""

    @property
    def weights(self) -> Tensor:
        """Those of the grid's tokens: `windows`, or the first of `tokens` where there are none."""
        return self.tokens[0] if self.windows is None else self.windows

    @property
    def rank(self) -> int:
        """R."""
        return 0 if self.projection is None else self.projection.shape[2]

    @property
    def window(self) -> tuple[int, int]:
        """(a, b) of a window or slice, (0, 0) for none."""
        if isinstance(self.layer, CompositeSliceAttention):
            return self.layer.slice_size
        return self.layer.window if isinstance(self.layer, LongShortAttention) else (0, 0)

    @property
    def halo(self) -> tuple[int, int]:
        """(sa, sb)."""
        halo = getattr(self.layer, "halo", (0, 0))
        return halo[0], halo[1]

    def front_and_window(self) -> tuple[Tensor | None, Tensor | None]:
        """Each token's weights of the R+G keys in front [B,h,H,W,R+G], of its K [B,h,H,W,K]."""
        (H, W), E = self.grid, self.rank + self.num_global
        if self.windows is not None:
            a, b = self.window
            n = num_windows(H, a), num_windows(W, b)
            # [B,h,N,T,E+K] -> [B,h,Nh,Nw,a,b,E+K] -> [B,h,Nh*a,Nw*b,E+K] -> [B,h,H,W,E+K]
            x = self.windows.unflatten(3, (a, b)).unflatten(2, n).transpose(3, 4)
            x = x.flatten(4, 5).flatten(2, 3)[:, :, :H, :W]
            return (x[..., :E] if E else None), x[..., E:]
        if isinstance(self.layer, LongShortAttention):
            return self.tokens[0].unflatten(2, (H, W)), None
        return None, None

    def shares(self) -> dict[Part, Tensor]:
        """Which part of each token's attention goes where [B,h,H,W]; they add up to one.

        The attention among slices is a softmax of its own beside that of tokens: its share is one
        where it is all there is (an MLP mixes the tokens), and else a half by construction.
        """
        (H, W), G = self.grid, self.num_global
        if isinstance(self.layer, FullAttention):
            x = self.tokens[0][:, :, G:].unflatten(2, (H, W))
            return {"grid": x[..., G:].sum(-1), "global": x[..., :G].sum(-1)}
        front, near = self.front_and_window()
        if isinstance(self.layer, CompositeSliceAttention):
            shape = (*self.tokens[0].shape[:2], H, W)
            half = 0.5 if near is not None else 1.0
            return {
                "window": self.tokens[0].new_full(shape, 1 - half),
                "slices": self.tokens[0].new_full(shape, half),
            }
        known = near if front is None else front
        assert known is not None
        zero = known.new_zeros(known.shape[:-1])
        return {
            "window": zero if near is None else near.sum(-1),
            "projected": zero if front is None else front[..., : self.rank].sum(-1),
            "global": zero if front is None else front[..., self.rank :].sum(-1),
        }

    def of_query(self, row: int, column: int) -> dict[Part, Tensor]:
        """Where one token looks, part by part, as maps of the grid [B,h,H,W].

        The weight of a projected token is spread over the grid by its row of P, that of a slice
        over its tokens, that of a strided key over the tokens it stands for. With DualLN, the layer
        norm after the projection makes that an attribution, not an identity. Global tokens are on
        no map; `shares` tells their part.

        Raises:
            ValueError: no such token.
        """
        H, W = self.grid
        if not (0 <= row < H and 0 <= column < W):
            raise ValueError(
                f"query must lie in the grid of {H} x {W} tokens of {self.name}, "
                f"got {row},{column}."
            )
        seed = self.weights.new_zeros(1, 1, H, W, dtype=torch.float64)
        seed[0, 0, row, column] = 1
        parts = self._pulled(seed, seed.new_zeros(1, 1, self.num_global))
        return {part: grid for part, grid in parts.items() if part not in ("to_global", "global")}

    def pull(self, grid: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance of what comes out, handed to what went in: one step of a rollout.

        Args:
            grid: Of the tokens [B,H,W].
            tokens: Of the global tokens [B,G].

        Returns:
            The same shapes; the mean over the heads.
        """
        parts = self._pulled(grid[:, None].double(), tokens[:, None].double())
        new_tokens = parts.pop("to_global")
        together = torch.stack(list(parts.values())).sum(0)
        return together.mean(1), new_tokens.mean(1)

    def _pulled(self, grid: Tensor, tokens: Tensor) -> dict[Any, Tensor]:
        """Relevance [B,1,H,W] and [B,1,G] by part [B,h,H,W], and "to_global" [B,h,G]."""
        if isinstance(self.layer, FullAttention):
            return self._pulled_full(grid, tokens)
        if isinstance(self.layer, CompositeSliceAttention):
            return self._pulled_slices(grid)
        front, near = self.front_and_window()
        known = near if front is None else front
        assert known is not None
        to_global = known.new_zeros(*known.shape[:2], self.num_global, dtype=torch.float64)
        from_tokens: Tensor | None = None
        if self.num_global:  # their rows: of keys, or of the outputs of the grid
            rows = self.tokens[-1].double()
            back = torch.einsum("bhg,bhgk->bhk", tokens.expand(*rows.shape[:2], -1), rows)
            to_global = to_global + back[..., : self.num_global]
            of_grid = back[..., self.num_global :].unflatten(2, self.grid)
            if getattr(self.layer, "read_keys", False):
                from_tokens = of_grid
            else:
                grid = grid + of_grid
        parts: dict[Any, Tensor] = {}
        if near is not None:
            parts["window"] = self._to_places(grid[..., None] * near.double())
        if front is not None:
            keys = torch.einsum("bhyx,bhyxe->bhe", grid.expand(*front.shape[:4]), front.double())
            if self.projection is not None:
                spread = keys[..., None, : self.rank] @ self.projection.double()
                parts["projected"] = spread[..., 0, :].unflatten(2, self.grid)
            to_global = to_global + keys[..., self.rank :]
        if from_tokens is not None:
            parts["global"] = from_tokens
        return {**parts, "to_global": to_global}

    def _pulled_full(self, grid: Tensor, tokens: Tensor) -> dict[Any, Tensor]:
        weights, G, (H, W) = self.tokens[0].double(), self.num_global, self.grid
        rows = torch.cat((tokens, grid.flatten(2)), 2).expand(*weights.shape[:2], -1)
        keys = torch.einsum("bhq,bhqk->bhk", rows, weights)
        on_grid = keys[..., G:]
        if on_grid.shape[2] != H * W:  # keys with a stride: each stands for a few tokens
            stride = self._stride()
            few = on_grid.unflatten(2, (num_windows(H, stride), num_windows(W, stride)))
            on_grid = spread(few, (stride, stride), self.grid)
        else:
            on_grid = on_grid.unflatten(2, (H, W))
        return {"grid": on_grid, "to_global": keys[..., :G]}

    def _stride(self) -> int:
        """Of the keys of full attention, in tokens."""
        convolutions: Any = self.layer.qkv
        return int(convolutions.k.depthwise.stride[0])

    def _pulled_slices(self, grid: Tensor) -> dict[Any, Tensor]:
        """Half to the tokens and half to the slices, in the order of the composition."""
        among, (a, b), (H, W) = self.tokens[0].double(), self.window, self.grid
        n = num_windows(H, a), num_windows(W, b)
        _, near = self.front_and_window()

        def inside(x: Tensor) -> Tensor:  # of an MLP, which has no weights: the mean of a slice
            if near is not None:
                return self._to_places(x[..., None] * near.double())
            return spread(_collect(x, (a, b)), (a, b), self.grid)

        def of_slices(x: Tensor) -> Tensor:
            rows = _collect(x, (a, b)).flatten(2).expand(*among.shape[:2], -1)
            keys = torch.einsum("bhq,bhqk->bhk", rows, among).unflatten(2, n)
            return spread(keys, (a, b), self.grid)

        half = 0.5 * grid.expand(*among.shape[:2], -1, -1)
        composition = getattr(self.layer, "composition", "")
        local, slices = inside(half), of_slices(half)
        if composition == "local_first":
            slices = inside(slices)
        elif composition == "slices_first":
            local = 0.5 * (local + of_slices(local))
        parts: dict[Any, Tensor] = {"window": local, "slices": slices}
        return {**parts, "to_global": grid.new_zeros(*among.shape[:2], 0)}

    def _to_places(self, by_key: Tensor) -> Tensor:
        """What each token gives to its K keys [B,h,H,W,K], added up where they are [B,h,H,W]."""
        H, W = self.grid
        places = torch.arange(1, H * W + 1, dtype=torch.float64).view(1, H, W, 1)
        keys = partition_halo(places, self.window, self.halo)[0, ..., 0].flatten(2).long()
        (a, b), (Nh, Nw) = self.window, keys.shape[:2]
        of_window = torch.arange(Nh * Nw).view(1, Nh, Nw, 1, 1, 1).expand(-1, -1, -1, a, b, -1)
        which = of_window.permute(0, 1, 3, 2, 4, 5).reshape(Nh * a, Nw * b)[:H, :W]
        index = keys.flatten(0, 1)[which].flatten()  # [H*W*K], 0 outside the grid
        added = by_key.new_zeros(*by_key.shape[:2], H * W + 1)
        added.index_add_(2, index.to(by_key.device), by_key.flatten(2))
        return added[..., 1:].unflatten(2, (H, W))


def _collect(x: Tensor, window: tuple[int, int]) -> Tensor:
    """The sum over each window: [B,h,H,W] -> [B,h,Nh,Nw]."""
    return partition(x.permute(0, 2, 3, 1), window).sum((3, 4)).permute(0, 3, 1, 2)


def spread(x: Tensor, window: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Each window's number in equal parts to its tokens in the grid: [B,h,Nh,Nw] -> [B,h,H,W]."""
    counts = _collect(x.new_ones(1, 1, *grid), window)
    each = (x / counts).repeat_interleave(window[0], 2).repeat_interleave(window[1], 3)
    return each[:, :, : grid[0], : grid[1]]


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
        x, g = args[0], args[1]
        num_global = 0 if g is None else g.shape[1]
        layer = Attention(name, module, (x.shape[1], x.shape[2]), num_global)
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
        name: module for name, module in model.named_modules() if isinstance(module, _LAYERS)
    }
    if not layers:
        raise ValueError(
            "model must have attention layers of vit_ls that can be recorded, "
            f"got none in {type(model).__name__}."
        )
    forwards = [layer.forward for layer in _LAYERS]
    other = next((m for m in layers.values() if type(m).forward not in forwards), None)
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


def _is_compiled(module: nn.Module) -> bool:
    """Whether by either way of PyTorch, with a layer in it that could be recorded."""
    compiled = "_orig_mod" in module._modules or module._compiled_call_impl is not None
    return compiled and any(isinstance(inner, _LAYERS) for inner in module.modules())


def _take(layer: Attention, kind: Kind, weights: Tensor) -> None:
    weights = weights.detach()
    if kind == "tokens":
        layer.tokens.append(weights)
    else:
        setattr(layer, kind, weights)
