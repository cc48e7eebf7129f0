"""A stage: an embedding, global tokens, and blocks that share one geometry."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext

import torch
from timm.layers import trunc_normal_
from timm.models import checkpoint
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vit_ls.layers.composite_slice import SliceGeometry
from vit_ls.layers.embed import ConvEmbed
from vit_ls.layers.geometry import Geometry
from vit_ls.layers.position_bias import GridPositionBias

_Run = Callable[[Tensor, Tensor | None, Geometry], tuple[Tensor, Tensor | None]]


class Stage(nn.Module):
    """Embed the grid of the stage before, add this stage's global tokens, run the blocks.

    Args:
        embed: Maps [B,H,W,Cin] to [B,H',W',C].
        geometry: Makes, once per forward, what the blocks share on their grid.
        blocks: Map (grid, global tokens or None, geometry) to (grid, global tokens or None).
        dim: C.
        num_global: G.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        embed: nn.Module,
        geometry: nn.Module,
        blocks: list[nn.Module],
        *,
        dim: int,
        num_global: int = 0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.grad_checkpointing = False
        self.embed = embed
        self.geometry = geometry
        self.global_tokens: nn.Parameter | None = None
        if num_global > 0:
            tokens = torch.empty(1, num_global, dim, device=device, dtype=dtype)
            self.global_tokens = nn.Parameter(tokens)
        self.blocks = nn.ModuleList(blocks)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the global tokens anew."""
        if self.global_tokens is not None:
            trunc_normal_(self.global_tokens, std=0.02)

    def set_grid(self, grid: tuple[int, int]) -> None:
        """Make the position parameters for another grid (H, W), in tokens."""
        for module in self.modules():
            if isinstance(module, (ConvEmbed, SliceGeometry, GridPositionBias)):
                module.set_grid(grid)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """[B,H,W,Cin] -> grid [B,H',W',C], global tokens [B,G,C] or None."""
        x, g, _ = self.forward_intermediates(x, ())
        return x, g

    def forward_intermediates(
        self, x: Tensor, indices: Collection[int], stop: int | None = None
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """As `forward`, and the grids [B,H',W',C] after the blocks `indices`, in their order.

        Args:
            x: [B,H,W,Cin].
            indices: Of blocks.
            stop: Run the blocks before this one; None for all.
        """
        grids = []
        x, g, geometry = self._enter(x)
        for i, block in enumerate(self.blocks[:stop]):
            x, g = (
                checkpoint(_counted_once(block), x, g, geometry)
                if self.grad_checkpointing
                else block(x, g, geometry)
            )
            if i in indices:
                grids.append(x)
        return x, g, grids

    def _enter(self, x: Tensor) -> tuple[Tensor, Tensor | None, Geometry]:
        x = self.embed(x)
        g: Tensor | None = None
        if self.global_tokens is not None:
            g = self.global_tokens.expand(x.shape[0], -1, -1)
        return x, g, self.geometry(x)


def _counted_once(block: nn.Module) -> _Run:
    """The block, whose batch norms take a batch into their statistics in the first run alone.

    A checkpoint runs it again in the backward pass, where the statistics have the batch already.
    """
    if torch.compiler.is_compiling():  # a graph writes them once, whatever it computes again
        return block
    ran = False

    def run(x: Tensor, g: Tensor | None, geometry: Geometry) -> tuple[Tensor, Tensor | None]:
        nonlocal ran
        statistics = _held_statistics(block) if ran else nullcontext()
        ran = True
        with statistics:
            y: tuple[Tensor, Tensor | None] = block(x, g, geometry)
        return y

    return run


@contextmanager
def _held_statistics(block: nn.Module) -> Iterator[None]:
    """What batch norms write is lost at the end of the `with` block."""
    norms = [m for m in block.modules() if isinstance(m, _BatchNorm) and m.training]
    buffers = [(norm, name, x) for norm in norms for name, x in norm.named_buffers(recurse=False)]
    try:
        for norm, name, x in buffers:
            setattr(norm, name, x.clone())
        yield
    finally:
        for norm, name, x in buffers:
            setattr(norm, name, x)
