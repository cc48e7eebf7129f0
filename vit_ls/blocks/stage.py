"""A stage: an embedding, global tokens, and blocks that share one grid."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from timm.models import checkpoint
from torch import Tensor, nn

from vit_ls.attention import Options, Place
from vit_ls.attention.positions import Undecayed
from vit_ls.blocks.block import Block, BlockSpec
from vit_ls.blocks.embed import ConvEmbed, Embed

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

_Run = Callable[[Tensor, Tensor | None, Any], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class StageSpec:
    """An embedding and the blocks that follow it on one grid."""

    embed: Embed
    num_heads: int
    dim: int
    depth: int
    attention: Options
    num_global: int = 0
    """Global tokens that the stage brings, learned, and drops at its end."""

    def place(self, **where: Any) -> Place:
        """That of its attention layers; `where` has the other fields of a `Place`."""
        return Place(self.dim, self.num_heads, num_global=self.num_global, **where)


class Stage(Undecayed):
    """Embed the grid of the stage before, add this stage's global tokens, run the blocks.

    Args:
        spec: Of the stage.
        blocks: What its blocks have in common with those of other stages.
        in_chans: Channels that enter the stage.
        place: Of its attention layers (`StageSpec.place`).
        drop_path_rates: One per block.
    """

    def __init__(
        self,
        spec: StageSpec,
        blocks: BlockSpec,
        *,
        in_chans: int,
        place: Place,
        drop_path_rates: Sequence[float],
    ) -> None:
        super().__init__()
        self.grad_checkpointing = False
        self.embed = ConvEmbed(
            *(spec.embed, in_chans, spec.dim),
            norm_eps=blocks.norm_eps,
            grid=place.grid,
            on=place.on,
        )
        made = [Block(spec.attention.layer(place), place, blocks, rate) for rate in drop_path_rates]
        self.geometry = spec.attention.shared(place)
        self.global_tokens: nn.Parameter | None = None
        if spec.num_global > 0:
            tokens = torch.empty(1, spec.num_global, spec.dim, **place.on)
            self.global_tokens = nn.Parameter(tokens)
        self.blocks = nn.ModuleList(made)
        self.reset_parameters()

    def set_grid(self, grid: tuple[int, int]) -> None:
        """Make the position parameters for another grid (H, W), in tokens."""
        for module in self.modules():
            set_grid = getattr(module, "set_grid", None)
            if set_grid is not None and module is not self:
                set_grid(grid)

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
        x, g, shared = self._enter(x)
        for i, block in enumerate(self.blocks[:stop]):
            x, g = (
                checkpoint(_counted_once(block), x, g, shared)
                if self.grad_checkpointing
                else block(x, g, shared)
            )
            if i in indices:
                grids.append(x)
        return x, g, grids

    def _enter(self, x: Tensor) -> tuple[Tensor, Tensor | None, Any]:
        x = self.embed(x)
        g = None
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

    def run(x: Tensor, g: Tensor | None, shared: Any) -> tuple[Tensor, Tensor | None]:
        nonlocal ran
        statistics = _held_statistics(block) if ran else nullcontext()
        ran = True
        with statistics:
            y: tuple[Tensor, Tensor | None] = block(x, g, shared)
        return y

    return run


@contextmanager
def _held_statistics(block: nn.Module) -> Iterator[None]:
    """What batch norms write is lost at the end of the `with` block."""
    norms = [m for m in block.modules() if isinstance(m, _BATCH_NORMS) and m.training]
    buffers = [(norm, name, x) for norm in norms for name, x in norm.named_buffers(recurse=False)]
    try:
        for norm, name, x in buffers:
            setattr(norm, name, x.clone())
        yield
    finally:
        for norm, name, x in buffers:
            setattr(norm, name, x)
