"""The staged backbone of all families, with timm's interface."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from timm.layers import (
    ClassifierHead,
    calculate_drop_path_rates,
    get_device_dtype,
    is_scriptable,
    to_2tuple,
    trunc_normal_,
)
from timm.models._features import feature_take_indices
from timm.models._input import update_model_input_size
from torch import Tensor, nn

from vit_ls.attention.positions import Undecayed
from vit_ls.blocks import BlockSpec, Stage, StageSpec
from vit_ls.models.convert import fit

_NO_SCRIPT = (
    "A model must be exported by torch.export, since PyTorch has deprecated TorchScript, got {}."
)


@dataclass(frozen=True)
class BackboneSpec(BlockSpec):
    """Stages, and what is the same in all of them."""

    stages: tuple[StageSpec, ...]
    img_size: int
    """Side of the images, in pixels, that position tables are made for; others run too."""
    global_pool: Literal["avg", "token"] = "avg"
    """What the classifier reads: the mean of the last grid, or its stage's global token."""
    released: Literal["cvt", "vil"] | None = None
    """The kind of file (`vit_ls.models.names.Kind`) that this architecture was released in: it must
    fit whole, where other models take what they can use of it."""
    maps_of_blocks: bool = False
    """Each block gives a feature map, as in timm's plain ViT; else each stage gives one."""
    features: tuple[int, ...] | None = None
    """Which of the maps timm's `features_only` gives where it is not told; None for all."""


class StagedTransformer(nn.Module):
    """Stages of transformer blocks, each on a grid that its embedding made of the one before.

    Images and feature maps are NCHW; inside, tokens are grids [B,H,W,C]. Any height and width runs:
    a size that a stride does not divide is padded below and to the right, so that a map has the
    size of the image divided by its reduction and rounded up.

    Args:
        spec: The architecture.
        img_size: Height and width in pixels that position tables are made for; None for the spec's.
        in_chans: Channels of the image.
        num_classes: Of the classifier; 0 for none.
        global_pool: A pooling of timm's `ClassifierHead`, "token" for the global token of the last
            stage, "" for none; None for the spec's.
        drop_rate: Dropout before the classifier.
        proj_drop_rate: Dropout after attention and within the MLPs.
        attn_drop_rate: Dropout of attention weights, those of the dynamic projection excepted.
        drop_path_rate: Stochastic depth of the last block; rises linearly from 0 over all blocks.
        weight_init: "skip" leaves PyTorch's own initial weights.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: a spec whose numbers do not fit each other; timm's `scriptable=True`.
        AssertionError: a global_pool that this backbone does not have.
    """

    def __init__(
        self,
        spec: BackboneSpec,
        img_size: int | tuple[int, int] | None = None,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str | None = None,
        drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        weight_init: Literal["", "skip"] = "",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if is_scriptable():
            raise ValueError(_NO_SCRIPT.format("scriptable=True"))
        self.in_chans = in_chans
        self.num_classes = num_classes
        self.output_fmt = "NCHW"
        self.released = spec.released
        self.maps_of_blocks = spec.maps_of_blocks
        self.spec = spec
        self.img_size = grid = _size(spec.img_size if img_size is None else img_size, spec)
        depths = [stage.depth for stage in spec.stages]
        rates: Any = calculate_drop_path_rates(drop_path_rate, depths, stagewise=True)
        stages = []
        self.feature_info: list[dict[str, Any]] = []
        reduction = 1
        for i, stage in enumerate(spec.stages):
            grid = stage.embed.grid_after(grid)
            place = stage.place(
                grid=grid, conv_projection=spec.conv_projection,
                attn_drop=attn_drop_rate, proj_drop=proj_drop_rate, device=device, dtype=dtype,
            )  # fmt: skip
            stages.append(
                Stage(stage, spec, in_chans=in_chans, place=place, drop_path_rates=rates[i])
            )
            in_chans = stage.dim
            reduction *= stage.embed.stride
            info = {"num_chs": stage.dim, "reduction": reduction}
            self.feature_info += (
                [info | {"module": f"stages.{i}.blocks.{j}"} for j in range(stage.depth)]
                if spec.maps_of_blocks
                else [info | {"module": f"stages.{i}"}]
            )
        self.stages = nn.ModuleList(stages)
        self.num_features = self.head_hidden_size = spec.stages[-1].dim
        self.norm: nn.Module = nn.LayerNorm(
            self.num_features, eps=spec.norm_eps, device=device, dtype=dtype
        )
        self.global_pool = spec.global_pool if global_pool is None else global_pool
        self.head = ClassifierHead(
            self.num_features,
            num_classes,
            pool_type=self._head_pool(self.global_pool),
            drop_rate=drop_rate,
            device=device,
            dtype=dtype,
        )
        self._name_head_pool()
        self.head_hidden_size = self.head.num_features
        if weight_init != "skip":
            self.init_weights(needs_reset=False)

    def init_weights(self, mode: str = "", needs_reset: bool = True) -> None:
        """Truncated normal (std 0.02) for linear weights, tables and tokens, zeros for biases.

        Args:
            mode: Must be "": there is one scheme.
            needs_reset: Also call `reset_parameters` of every other module, as after `to_empty`.

        Raises:
            ValueError: another mode.
        """
        if mode:
            raise ValueError(f"weight initialisation mode must be '', got {mode!r}.")

        def init(module: nn.Module) -> None:
            if isinstance(module, nn.Linear):
                if module.weight.is_meta:
                    return  # there is nothing to write, and on this device it takes long
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
                return
            reset = getattr(module, "reset_parameters", None)
            if needs_reset and callable(reset):
                reset()

        self.apply(init)

    def __prepare_scriptable__(self) -> nn.Module:
        """Refuse what `torch.jit.script` asks of a module first.

        Raises:
            ValueError: always.
        """
        raise ValueError(_NO_SCRIPT.format("torch.jit.script"))

    def _head_pool(self, global_pool: str) -> str:
        """The pooling of the head, to which the global token comes as the mean of the map."""
        if global_pool != "token":
            return global_pool
        has_tokens = getattr(self.stages[-1], "global_tokens", None) is not None
        assert has_tokens, (
            "global_pool='token' needs global tokens in the last stage, which has none."
        )
        return "avg"

    def _name_head_pool(self) -> None:
        """Tell the head what it pools: timm saves that name with the weights."""
        if self.global_pool == "token":
            self.head.global_pool.pool_type = "token"

    def no_weight_decay(self) -> set[str]:
        """Names of the global tokens and position parameters."""
        return {
            f"{owner}.{name}"
            for owner, module in self.named_modules()
            if isinstance(module, Undecayed)
            for name, _ in module.named_parameters(recurse=False)
        }

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Patterns that order the parameters from stem to head, for layer-wise learning rates."""
        if coarse:
            return {
                "stem": r"^stages\.0\.embed",
                "blocks": [(r"^stages\.(\d+)", None), (r"^norm", (99999,))],
            }
        return {
            "stem": r"^stages\.0\.(?:embed|global_tokens|geometry)",
            "blocks": [
                (r"^stages\.(\d+)\.(?:embed|global_tokens|geometry)", (0,)),
                (r"^stages\.(\d+)\.blocks\.(\d+)", None),
                (r"^norm", (99999,)),
            ],
        }

    def set_input_size(self, img_size: int | tuple[int, int] | None = None) -> None:
        """Make the position parameters for images of another size.

        Any size runs without, by resizing them in each forward, and gives the same numbers until
        they are trained. Windows, slices and ranks stay. There and back, and twice to the same
        size, change no bit of parameters that were not changed in between.

        Args:
            img_size: Height and width in pixels, or both at once; None for the present ones.

        Raises:
            ValueError: no size, or one that the model does not take; nothing was changed.
        """
        size = self.img_size if img_size is None else _size(img_size, self.spec)
        grid = size
        for stage, spec in zip(self.stages, self.spec.stages, strict=False):  # some may be pruned
            grid = spec.embed.grid_after(grid)
            assert isinstance(stage, Stage)
            stage.set_grid(grid)
        self.img_size = size
        update_model_input_size(self, size)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block's activations in the backward pass instead of keeping them."""
        for stage in self.stages:
            assert isinstance(stage, Stage)
            stage.grad_checkpointing = enable

    def fit_state_dict(self, state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
        """Weights of this model, in any form that `checkpoint_filter_fn` accepts, made to fit.

        Unlike there, no part of the model may start anew: this is for evaluation.

        Raises:
            ValueError: They are of another architecture; nothing was changed.
        """
        found = fit(state_dict, self)
        found.check()
        if not found.whole:
            raise ValueError(
                "The checkpoint must hold the whole model, which only a warm start for training "
                f"does without. {found.summary()}"
            )
        found.log()
        return found.state_dict

    def get_classifier(self) -> nn.Module:
        """The classifier: a linear layer, or the identity where there is none."""
        classifier: nn.Module = self.head.fc
        return classifier

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier.

        Args:
            num_classes: 0 for none.
            global_pool: As in the constructor; None keeps the present one.

        Raises:
            AssertionError: a global_pool that this backbone does not have.
        """
        pool = None if global_pool is None else self._head_pool(global_pool)
        self.head.reset(
            num_classes, pool_type=pool, in_features=self.num_features, **get_device_dtype(self)
        )
        self.num_classes = num_classes
        self.head_hidden_size = self.head.num_features
        if global_pool is not None:
            self.global_pool = global_pool
            self._name_head_pool()

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

    def forward_features(self, x: Tensor) -> Tensor:
        """Images [B,Cin,H,W] -> the last stage's map after the final norm, [B,C,H',W'].

        With `global_pool="token"` the map is shifted so that its mean over the positions is the
        global token, by which `forward_head`, which sees nothing but the map, classifies by the
        token.
        """
        x = x.permute(0, 2, 3, 1)
        g: Tensor | None = None
        for stage in self.stages:
            x, g = stage(x)
        return self._final(x, g).permute(0, 3, 1, 2)

    def _final(self, x: Tensor, g: Tensor | None) -> Tensor:
        x = self.norm(x)
        if self.global_pool == "token" and g is not None:
            token = self.norm(g).mean(1, keepdim=True).unsqueeze(1)
            x = x + (token - x.mean((1, 2), keepdim=True))
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map [B,C,H',W'] -> logits [B,num_classes], or with `pre_logits` what makes them."""
        return self.head(x, pre_logits=True) if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """Images [B,Cin,H,W] -> logits [B,num_classes]."""
        return self.forward_head(self.forward_features(x))


def _size(img_size: Any, spec: BackboneSpec) -> tuple[int, int]:
    """Height and width in pixels."""
    pair = to_2tuple(img_size)
    least = spec.stages[0].embed.least_side
    if len(pair) != 2 or not all(type(n) is int and n >= least for n in pair):
        raise ValueError(
            f"img_size must be one integer or two, of at least {least} pixels, got {img_size!r}."
        )
    return pair[0], pair[1]
