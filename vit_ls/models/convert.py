"""Weights of others, and of other sizes, to the keys and shapes of a model here."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from vit_ls.attention.position_bias import WindowPositionBias, window_of_table
from vit_ls.models.names import Named, Origin, under_our_names
from vit_ls.ops import resize_axis, resize_positions

_logger = logging.getLogger(__name__)

_SHOWN = 5

_POSITION_AXES = ("embed.pos_rows", "embed.pos_columns")
_POSITION_GRIDS = ("geometry.local_pos", "geometry.slice_pos", "embed.pos_embed")
_RANKED = re.compile(r"\.dynamic_projection\.(pointwise\.)?(weight|bias)$")
_SCALED = re.compile(r"^stages\.(\d+)\.blocks\.\d+\.attn\.qkv\.q\.pointwise\.(weight|bias)$")


class Rules(NamedTuple):
    """What a warm start may do that a load may not: patterns of keys under this package's names."""

    new: re.Pattern[str]
    """Parts of a model that may start anew, where the file has nothing of that part."""
    left_out: re.Pattern[str]
    """Parts of a file that may be left out, where the model has them not."""
    zero: re.Pattern[str]
    """Parts of a model that the file's architecture goes without, as if they were zero."""


_NONE = re.compile(r"(?!)")

WARM_STARTS: dict[Origin, Rules] = {
    "cvt": Rules(
        new=re.compile(r"\.(dynamic_projection|norm_kv|norm_projected)\."),
        left_out=_NONE,
        zero=re.compile(r"\.qkv\.[qkv]\.depthwise\.bias$"),
    ),
    "vil": Rules(
        new=re.compile(
            r"\.(dynamic_projection|norm_kv|norm_projected|position_bias)\.|\.geometry\."
            r"|\.attn\.(slice_qkv|mixer|aggregate)\."
        ),
        left_out=re.compile(r"\.global_tokens$|\.position_bias\.|\.embed\.pos_"),
        zero=_NONE,
    ),
    "vit": Rules(
        new=re.compile(r"\.geometry\.|\.pos_embed$|\.attn\.(slice_qkv|mixer|aggregate)\."),
        left_out=re.compile(r"^(cls_token|pos_embed)$"),
        zero=_NONE,
    ),
}


@dataclass
class Fit:
    """How the weights of a file fit a model; lists of the model's keys, but for the file's own."""

    title: str
    """What the file is, for a person."""
    model: str
    state_dict: dict[str, Tensor]
    """For the model, whole if nothing is missing, unexpected or of another shape."""
    folded: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    windows: list[tuple[int, int]] = field(default_factory=list)
    """Those of the file's position tables in each stage that has windows, and the model's."""
    zero: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Keys of the file."""
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    """Keys of the file."""
    other_shape: list[str] = field(default_factory=list)
    """With both shapes."""

    @property
    def whole(self) -> bool:
        """Whether the model is all that the file holds, and the file all that the model needs."""
        return not (self.new or self.left_out or self.zero)

    @property
    def problems(self) -> int:
        """How many tensors are missing, unexpected or of another shape; none if it fits."""
        return len(self.missing) + len(self.unexpected) + len(self.other_shape)

    def complaint(self) -> str:
        """What is missing, unexpected and of another shape."""
        return complaint(self.missing, self.unexpected, self.other_shape)

    def check(self) -> None:
        """Raise ValueError unless it fits."""
        if self.problems:
            raise ValueError(
                f"The checkpoint must fit {self.model}, got one with {self.complaint()}."
            )

    def log(self) -> None:
        """Warn if the model is more, less or otherwise than the file's own; else inform."""
        other = any(theirs != ours for theirs, ours in self.windows)
        level = logging.INFO if self.whole and not other else logging.WARNING
        _logger.log(level, "%s", self.summary())

    def summary(self) -> str:
        """One line that counts what becomes of the tensors."""
        return f"The checkpoint is {self.title}. For {self.model}: {self.counts()}."

    def counts(self) -> str:
        """How many tensors are taken over and how, start anew and are left out."""
        taken = len(self.state_dict) - len(self.new) - len(self.zero)
        parts = {
            "folded": self.folded,
            "resized": self.resized,
            "zero": self.zero,
            "anew": self.new,
            "left out": self.left_out,
        }
        more = "; ".join(
            f"{len(keys)} {what}{_first(_places(keys))}" for what, keys in parts.items() if keys
        )
        counts = f"{taken} tensors taken over" + (f"; {more}" if more else "")
        theirs, ours = (tuple(pair[i] for pair in self.windows) for i in (0, 1))
        if theirs != ours:
            counts += f"; it has windows of {theirs} tokens, which this model has as {ours}"
        return counts


def complaint(missing: list[str], unexpected: list[str], other_shape: list[str]) -> str:
    """How many tensors do not fit a model, with the first of them."""
    parts = {"missing": missing, "unexpected": unexpected, "of another shape": other_shape}
    return "; ".join(f"{len(keys)} {what}{_first(keys)}" for what, keys in parts.items())


def checkpoint_filter_fn(state_dict: Mapping[str, Any], model: nn.Module) -> dict[str, Tensor]:
    """A state dict of any accepted kind -> one that fits the model, as timm calls it on loading.

    Accepted are the model's own keys; files as Microsoft released ViL and CvT, the latter with
    Hugging Face's names too; the ViL-LS files released with arXiv:2107.02192; and, for `cst_vit_*`,
    timm's plain ViT and DeiT; each as trainers wrap it (`wrappers`). Position tables of another
    size are resized. A model that is not the file's own takes what it can use of it
    (`WARM_STARTS`), a dynamic projection of another rank starts anew, and one warning counts that.

    Args:
        state_dict: As read from a file.
        model: That it is to be loaded into; not changed.

    Raises:
        ValueError: what is left does not fit the model; lists what is missing, unexpected and of
            another shape.
    """
    found = fit(state_dict, model)
    found.check()
    found.log()
    return found.state_dict


def fit(state_dict: Mapping[str, Any], model: nn.Module) -> Fit:
    """How a state dict of any kind fits a model; neither is changed."""
    named = under_our_names(state_dict)
    own, state = model.state_dict(), dict(named.tensors)
    cfg = cast("dict[str, Any]", model.pretrained_cfg)
    found = Fit(named.title, cfg["architecture"], state)
    if named.unscaled:
        found.folded = _fold_scale(state, model)
    found.windows = _windows(state, model, whole_halo=named.kind == "vil")
    found.resized = _resize_position_tables(state, model, whole_halo=named.kind == "vil")
    _keep_projections_of_another_rank(found, own)
    if named.kind in WARM_STARTS and named.kind != getattr(model, "released", None):
        _start_warm(found, own, named, WARM_STARTS[named.kind])
    adapted = _adapted_by_timm(model, cfg)
    found.missing = [k for k in own if k not in state and k not in adapted]
    found.unexpected = [k for k in state if k not in own and k not in adapted]
    found.other_shape = [
        f"{k} {tuple(state[k].shape)} instead of {tuple(own[k].shape)}"
        for k in own
        if k in state and k not in adapted and state[k].shape != own[k].shape
    ]
    return found


def _fold_scale(state: dict[str, Tensor], model: nn.Module) -> list[str]:
    """Make queries scaled by dim^-0.5 those of a scale of head_dim^-0.5."""
    stages: Any = model.stages
    folded = []
    for key in state:
        place = _SCALED.match(key)
        if place is not None and int(place[1]) < len(stages):
            heads: int = stages[int(place[1])].blocks[0].attn.num_heads
            state[key] = state[key] * heads**-0.5
            folded.append(key)
    return folded


def _windows(
    state: dict[str, Tensor], model: nn.Module, *, whole_halo: bool
) -> list[tuple[int, int]]:
    windows = []
    for name, bias in model.named_modules():
        table = state.get(f"{name}.table")
        if isinstance(bias, WindowPositionBias) and ".blocks.0." in name and table is not None:
            theirs = window_of_table(table, whole_halo)
            if theirs is not None:
                windows.append((theirs, bias.window))
    return windows


def _resize_position_tables(
    state: dict[str, Tensor], model: nn.Module, *, whole_halo: bool
) -> list[str]:
    """Resize in place; `whole_halo` is whether tables of windows are of a halo of a whole one."""
    own, resized = model.state_dict(), []
    for key, positions in state.items():
        if key not in own or not key.endswith((*_POSITION_GRIDS, *_POSITION_AXES)):
            continue
        if positions.shape != own[key].shape:
            axis = key.endswith(_POSITION_AXES)
            size = own[key].shape
            state[key] = (
                resize_axis(positions, size[0]) if axis else resize_positions(positions, *size[:2])
            )
            resized.append(key)
    modules: dict[str, Any] = dict(model.named_modules())
    for key in [k for k in state if k.endswith("position_bias.table")]:
        bias = modules.get(key.removesuffix(".table"))
        if bias is None:
            continue
        # by the kind of file and model, not by their rows alone, which meet by chance
        other_halo = isinstance(bias, WindowPositionBias) and bias.whole_halo != whole_halo
        if other_halo or state[key].shape[0] != bias.table.shape[0]:
            window = isinstance(bias, WindowPositionBias)
            table = state[key]
            state[key] = bias.resize(table, whole_halo) if window else bias.resize(table)
            resized.append(key)
    return resized


def _keep_projections_of_another_rank(found: Fit, own: Mapping[str, Tensor]) -> None:
    for key, value in own.items():
        fits = key not in found.state_dict or found.state_dict[key].shape == value.shape
        if not fits and _RANKED.search(key):
            found.state_dict[key] = value
            found.new.append(key)


def _start_warm(found: Fit, own: Mapping[str, Tensor], named: Named, rules: Rules) -> None:
    for key, value in own.items():
        if key in found.state_dict:
            continue
        part = rules.new.search(key)
        if rules.zero.search(key):
            found.state_dict[key] = torch.zeros_like(value)
            found.zero.append(key)
        elif part is not None and not any(part[0] in name for name in named.tensors):
            found.state_dict[key] = value
            found.new.append(key)
    for key in named.tensors:
        if key not in own and rules.left_out.search(key):
            del found.state_dict[key]
            found.left_out.append(key)


def _adapted_by_timm(model: nn.Module, cfg: Mapping[str, Any]) -> set[str]:
    """Keys whose shape timm sees to: the classifier, and the convolution of other channels."""
    adapted = set()
    if model.num_classes != cfg["num_classes"]:
        adapted |= {f"{cfg['classifier']}.weight", f"{cfg['classifier']}.bias"}
    if model.in_chans != cfg["input_size"][0]:
        adapted |= {f"{cfg['first_conv']}.weight"}
    return adapted


def _places(keys: Iterable[str]) -> list[str]:
    """Keys without the numbers of stage and block, each once."""
    return list(dict.fromkeys(re.sub(r"^stages\.\d+\.(blocks\.\d+\.)?", "", key) for key in keys))


def _first(keys: list[str]) -> str:
    more = ", ..." if len(keys) > _SHOWN else ""
    return f" ({', '.join(keys[:_SHOWN])}{more})" if keys else ""
