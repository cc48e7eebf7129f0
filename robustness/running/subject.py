"""The model under test: built by timm, loaded, hashed."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import timm
import torch
from timm.data import resolve_model_data_config

import vit_ls  # noqa: F401 - registers its models with timm
from robustness.data.labels import wnid_to_index
from robustness.data.listing import digest
from robustness.rules.protocols import Protocol, protocol_for
from robustness.running.identity import answers, check_steady, plain_state, weights_digest
from vit_ls.config import ConfigError, nearest
from vit_ls.errors import CheckpointError, one_line
from vit_ls.models.wrappers import Which
from vit_ls.paper import named
from vit_ls.run import as_trained, class_names, create, load_weights, named_by

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """A model ready to be evaluated.

    Attributes:
        model: In eval mode.
        name: timm's name, with the tag of the weights where they are timm's, and with the options
            that it was built with.
        weights: SHA-256 over the names, types, shapes and bytes of the state.
        origin: Where the weights are from: "checkpoint", "pretrained", "random" or "caller".
        arguments: What the model was built with, as texts.
        num_classes: Length of the model's answer.
        channels: 3 for RGB, 1 for grey.
        protocol: Makes the transform of a protocol for images of a side (None where it varies).
        attributes: Digest of what the model holds beside its state (`identity.plain_state`).
        example: A fixed picture as the model takes it: [C, H, W].
        which: Of a checkpoint: "raw" for its weights, "ema" for their average; else "".
    """

    model: torch.nn.Module
    name: str
    weights: str
    origin: str
    arguments: dict[str, str]
    num_classes: int
    channels: int
    protocol: Callable[[str, int | None], Protocol]
    attributes: str
    example: torch.Tensor
    which: Which | Literal[""] = ""

    @property
    def identity(self) -> dict[str, str]:
        """What the model is, for the cache's key; `answer_to` is compared beside it."""
        kind = type(self.model)
        return {
            "model": self.name,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "arguments": json.dumps(self.arguments, sort_keys=True),
            "weights": self.weights,
            "which": self.which,
            "attributes": self.attributes,
        }

    def answer_to(self, protocol: Protocol) -> tuple[float, ...] | None:
        """What the model says to a protocol's fixed pictures; None where it refuses one."""
        try:
            found = answers(self.model, protocol.probes)
        # Whatever a foreign model raises for an input that it cannot take.
        except Exception:
            _logger.debug("%s refuses a fixed picture", self.name, exc_info=True)
            return None
        return tuple(found.flatten().tolist())


def make_subject(
    model: torch.nn.Module,
    protocol: Callable[[str, int | None], Protocol],
    *,
    name: str,
    origin: str = "caller",
    arguments: Mapping[str, Any] | None = None,
    channels: int = 3,
    probed: tuple[str, int | None] = ("model", None),
    which: Which | Literal[""] = "",
) -> Subject:
    """A subject of any model that answers images [B, C, H, W] with scores [B, classes].

    Args:
        model: It is put in eval mode.
        protocol: Makes the transform of a protocol for images of a side.
        name: Of the model.
        origin: Where its weights are from.
        arguments: What it was built with.
        channels: 3 for RGB, 1 for grey.
        probed: A protocol, and a side of images, to try the model with.
        which: Of a checkpoint: "raw" for its weights, "ema" for their average; else "".

    Raises:
        ConfigError: The answer has another shape, the model cannot take the transform's images, or
            it draws random numbers.
    """
    model = model.eval()
    tried = protocol(*probed)
    if not tried.probes:
        raise ConfigError(
            f"transform takes none of the fixed pictures ({tried.refusal}); an image_size in the "
            "YAML of one's own benchmark sets theirs."
        )
    held = plain_state(model)
    taken = _taken(model, tried.probes, name)
    scores = check_steady(model, taken, name)
    # What a forward pass changes is a count or what the model keeps for the next one.
    still = {k: v for k, v in plain_state(model).items() if held.get(k) == v}
    texts = {key: repr(value) for key, value in sorted((arguments or {}).items())}
    return Subject(
        model,
        name,
        weights_digest(model),
        origin,
        texts,
        scores.shape[1],
        channels,
        protocol,
        digest(f"{key}={still[key]}\n" for key in sorted(still)),
        taken[0],
        which,
    )


def _taken(model: torch.nn.Module, probes: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    """The pictures that the model takes.

    Raises:
        ConfigError: It takes none, or answers with something else than scores.
    """
    taken, refused = [], ""
    for pixels in probes:
        try:
            answers(model, [pixels])
        except ConfigError:
            raise
        # Whatever a foreign model raises for an input that it cannot take.
        except Exception as error:
            shape = (1, *pixels.shape)
            refused = refused or f"{name} cannot take images {shape}: {one_line(error)}"
        else:
            taken.append(pixels)
    if not taken:
        raise ConfigError(refused)
    return taken


def build_subject(
    name: str,
    *,
    checkpoint: Path | None = None,
    weights: str = "best",
    pretrained: bool = False,
    num_classes: int | None = None,
    img_size: int | None = None,
    **model_kwargs: Any,
) -> Subject:
    """Build a timm model with its weights; without either source they are random.

    Args:
        name: A name that timm knows.
        checkpoint: File of the weights.
        weights: Which of it: "best" for those that its run scored best with, "ema" for the average,
            "raw" for the weights themselves.
        pretrained: Take timm's released weights.
        num_classes: Of the head, where it is not the model's own.
        img_size: Side of the input, where it is not the model's own.
        **model_kwargs: More arguments of the model.

    Raises:
        ConfigError: There is no such model, or the weights are not to be had or do not fit.
    """
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        raise ConfigError(f"timm has no model {name}{nearest(architecture, timm.list_models())}")
    given = {"num_classes": num_classes, "img_size": img_size}
    kwargs = _as_trained(checkpoint, architecture) | model_kwargs
    kwargs |= {key: value for key, value in given.items() if value is not None}
    model = _create(name, pretrained, kwargs)
    origin = "pretrained" if pretrained else "random"
    which: Which | Literal[""] = ""
    if checkpoint is not None:
        which = _load(model, checkpoint, weights)
        origin = "checkpoint"
    released: Any = model.pretrained_cfg
    tag = released.get("tag") if pretrained else None
    config = _data_config(model, kwargs.get("in_chans"), img_size)
    return make_subject(
        model,
        lambda protocol, image_size: protocol_for(protocol, config, image_size),
        name=named(f"{architecture}.{tag}" if tag else name, model_kwargs),
        origin=origin,
        arguments={key: kwargs[key] for key in kwargs if key != "pretrained_cfg_overlay"},
        channels=config["input_size"][0],
        which=which,
    )


def _data_config(
    model: torch.nn.Module, in_chans: int | None, img_size: int | None
) -> dict[str, Any]:
    """Timm's data configuration at test size; a grey model's statistics are the colours' means."""
    config = resolve_model_data_config(model, use_test_size=True)
    channels, *sides = config["input_size"]
    channels = in_chans or channels
    if channels not in (1, 3):
        raise ConfigError(f"in_chans must be 1 or 3, got {channels}.")
    config["input_size"] = (channels, *(sides if img_size is None else (img_size, img_size)))
    for name in ("mean", "std"):
        if len(config[name]) != channels:
            config[name] = (fmean(config[name]),) * channels
    return config


def _as_trained(checkpoint: Path | None, architecture: str) -> dict[str, Any]:
    """What a checkpoint's run made its model with; weights do not tell a window or a mean."""
    if checkpoint is None:
        return {}
    if not checkpoint.is_file():
        raise ConfigError(f"--checkpoint: no file {checkpoint}.")
    try:
        found = as_trained(checkpoint, architecture)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    _check_order(checkpoint)
    return found


def _check_order(checkpoint: Path) -> None:
    """Refuse a run that knew ImageNet's classes by other numbers: each answer would be wrong."""
    names, numbers = class_names(checkpoint) or {}, wnid_to_index()
    for name, index in names.items() if len(names) == len(numbers) else ():
        if numbers.get(name, index) != index:
            raise ConfigError(
                f"--checkpoint {checkpoint}: its run had class {name} at {index}, and ImageNet has "
                f"it at {numbers[name]}."
            )


def _create(name: str, pretrained: bool, kwargs: dict[str, Any]) -> torch.nn.Module:
    try:
        try:
            model: torch.nn.Module = create(
                timm.create_model, name, pretrained=pretrained, **kwargs
            )
        except TypeError as error:
            if "img_size" not in kwargs or "img_size" not in str(error):
                raise
            # Models of fixed input take img_size; convolutional ones neither know nor need it.
            rest = {key: value for key, value in kwargs.items() if key != "img_size"}
            model = create(timm.create_model, name, pretrained=pretrained, **rest)
    # Hubs, caches and constructors fail with errors of many kinds; all mean that there is no model.
    except Exception as error:
        what = "released weights cannot be had" if pretrained else "cannot be built"
        raise ConfigError(f"{name}: {what}: {one_line(error)}") from error
    return model


def _load(model: torch.nn.Module, checkpoint: Path, weights: str) -> Which:
    with named_by("--checkpoint"):
        return load_weights(model, checkpoint, weights=weights)
