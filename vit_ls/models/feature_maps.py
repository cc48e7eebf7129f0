"""The maps of chosen stages or blocks, as timm's `features_only` and its kin ask for them."""

from typing import Any

from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vit_ls.blocks import Stage


class FeatureMaps(nn.Module):
    """What a backbone of stages says of its maps."""

    stages: nn.ModuleList
    norm: nn.Module
    feature_info: list[dict[str, Any]]
    """Channels, reduction and module of each map."""
    maps_of_blocks: bool
    """Each block gives a map; else each stage gives one."""
    num_features: int
    head_hidden_size: int

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier."""
        raise NotImplementedError

    def _final(self, x: Tensor, g: Tensor | None) -> Tensor:
        raise NotImplementedError

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """The maps at the end of chosen stages, or blocks where the spec says so.

        Args:
            x: Images [B,Cin,H,W].
            indices: The last n of `feature_info` if an int, the named ones (negative from the end)
                if a list, all if None.
            norm: Apply the final norm to the last map of all.
            stop_early: Do not run the blocks after the last map asked for; then the final norm does
                not run either.
            output_fmt: "NCHW", the only one.
            intermediates_only: Return the maps alone.

        Returns:
            The maps [B,C,H',W'], or the final features (see `forward_features`) and the maps.
        """
        assert output_fmt == "NCHW", f"output_fmt must be 'NCHW', got {output_fmt!r}."
        places = self._places()
        take_indices, max_index = feature_take_indices(len(places), indices)
        whole = not stop_early or max_index == len(places) - 1
        last_stage, last_block = places[-1 if whole else max_index]
        maps: list[Tensor] = []
        g: Tensor | None = None
        x = x.permute(0, 2, 3, 1)
        for i, stage in enumerate(self.stages[: last_stage + 1]):
            assert isinstance(stage, Stage)
            blocks = [places[taken][1] for taken in take_indices if places[taken][0] == i]
            stop = last_block + 1 if i == last_stage else None
            x, g, grids = stage.forward_intermediates(x, blocks, stop)
            maps += grids
        if norm and max_index == len(self.feature_info) - 1:
            maps[-1] = self.norm(maps[-1])
        maps = [grid.permute(0, 3, 1, 2) for grid in maps]
        if intermediates_only:
            return maps
        if whole:
            x = self._final(x, g)
        return x.permute(0, 3, 1, 2), maps

    def _places(self) -> list[tuple[int, int]]:
        """Stage and block after which there is each map of `forward_intermediates`."""
        depths = [len(stage.blocks) for stage in self.stages if isinstance(stage, Stage)]
        if self.maps_of_blocks:
            return [(i, j) for i, depth in enumerate(depths) for j in range(depth)]
        return [(i, depth - 1) for i, depth in enumerate(depths)]

    def prune_intermediate_layers(
        self,
        indices: int | list[int] = 1,
        prune_norm: bool = False,
        prune_head: bool = True,
    ) -> list[int]:
        """Drop what the maps of `indices` do not need.

        Args:
            indices: As in `forward_intermediates`.
            prune_norm: Drop the final norm; it goes in any case when the last stage does.
            prune_head: Drop the head; it goes in any case when the last stage does.

        Returns:
            The indices, none of them negative.
        """
        take_indices: list[int]
        places = self._places()
        take_indices, max_index = feature_take_indices(len(places), indices)
        shorter = max_index < len(places) - 1
        last_stage, last_block = places[max_index]
        self.stages = self.stages[: last_stage + 1]
        stage = self.stages[last_stage]
        assert isinstance(stage, Stage)
        stage.blocks = stage.blocks[: last_block + 1]
        if prune_norm or shorter:
            self.norm = nn.Identity()
        if shorter:
            self.num_features = self.head_hidden_size = self.feature_info[max_index]["num_chs"]
        if prune_head or shorter:
            self.reset_classifier(0, "")
        return take_indices
