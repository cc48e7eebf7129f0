"""The staged backbone of all families, with timm's interface."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from timm.layers import (
    ClassifierHead,
    calculate_drop_path_rates,
    get_device_dtype,
    is_scriptable,
    trunc_normal_,
)
from timm.models._input import update_model_input_size
from torch import Tensor, nn

from vit_ls.attention.positions import Undecayed
from vit_ls.blocks import Stage
from vit_ls.models.convert import fit
from vit_ls.models.feature_maps import FeatureMaps
from vit_ls.models.spec import BackboneSpec

_NO_SCRIPT = (
    "A model must be exported by torch.export, since PyTorch has deprecated TorchScript, got {}."
)


class StagedTransformer(FeatureMaps):
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
        self.img_size = grid = spec.size(img_size)
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
        size = self.img_size if img_size is None else self.spec.size(img_size)
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
