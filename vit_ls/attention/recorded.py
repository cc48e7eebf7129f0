"""The attention weights of one layer in one forward pass, and what can be asked of them.

Each kind of attention says in its own file where its weights go; here is what all have in common.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vit_ls.grid import num_windows, partition, partition_halo

Part = Literal["window", "projected", "global", "grid", "slices"]
"""Of a query's attention: on tokens of its window or slice, on projected tokens, on global tokens;
on the whole grid (full attention); and on slices, which have a softmax of their own."""


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
        return 0, 0

    @property
    def halo(self) -> tuple[int, int]:
        """(sa, sb)."""
        return 0, 0

    def front_and_window(self) -> tuple[Tensor | None, Tensor | None]:
        """Each token's weights of the R+G keys in front [B,h,H,W,R+G], of its K [B,h,H,W,K]."""
        if self.windows is None:
            return None, None
        (H, W), (a, b), E = self.grid, self.window, self.rank + self.num_global
        n = num_windows(H, a), num_windows(W, b)
        # [B,h,N,T,E+K] -> [B,h,Nh,Nw,a,b,E+K] -> [B,h,Nh*a,Nw*b,E+K] -> [B,h,H,W,E+K]
        x = self.windows.unflatten(3, (a, b)).unflatten(2, n).transpose(3, 4)
        x = x.flatten(4, 5).flatten(2, 3)[:, :, :H, :W]
        return (x[..., :E] if E else None), x[..., E:]

    def shares(self) -> dict[Part, Tensor]:
        """Which part of each token's attention goes where [B,h,H,W]; they add up to one."""
        raise NotImplementedError

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
        parts = self.pulled(seed, seed.new_zeros(1, 1, self.num_global))
        return {part: grid for part, grid in parts.items() if part not in ("to_global", "global")}

    def pull(self, grid: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance of what comes out, handed to what went in: one step of a rollout.

        Args:
            grid: Of the tokens [B,H,W].
            tokens: Of the global tokens [B,G].

        Returns:
            The same shapes; the mean over the heads.
        """
        parts = self.pulled(grid[:, None].double(), tokens[:, None].double())
        new_tokens = parts.pop("to_global")
        together = torch.stack(list(parts.values())).sum(0)
        return together.mean(1), new_tokens.mean(1)

    def pulled(self, grid: Tensor, tokens: Tensor) -> dict[Any, Tensor]:
        """Relevance [B,1,H,W] and [B,1,G] by part [B,h,H,W], and "to_global" [B,h,G]."""
        raise NotImplementedError

    def to_places(self, by_key: Tensor) -> Tensor:
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


def collect(x: Tensor, window: tuple[int, int]) -> Tensor:
    """The sum over each window: [B,h,H,W] -> [B,h,Nh,Nw]."""
    return partition(x.permute(0, 2, 3, 1), window).sum((3, 4)).permute(0, 3, 1, 2)


def spread(x: Tensor, window: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Each window's number in equal parts to its tokens in the grid: [B,h,Nh,Nw] -> [B,h,H,W]."""
    counts = collect(x.new_ones(1, 1, *grid), window)
    each = (x / counts).repeat_interleave(window[0], 2).repeat_interleave(window[1], 3)
    return each[:, :, : grid[0], : grid[1]]
