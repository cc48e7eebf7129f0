"""The model under test: built by timm, loaded, hashed."""

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from timm.data import resolve_model_data_config
from timm.models import load_state_dict

import vit_ls  # noqa: F401 - registers its models with timm
from robustness.errors import UsageError
from vit_ls import engine
from vit_ls.paper import named


@dataclass(frozen=True)
class Subject:
    """A model ready to be evaluated.

    Attributes:
        model: In eval mode.
        name: timm's name, with the tag of the weights where they are timm's, and with the options
            that it was built with.
        weights: SHA-256 over the names, types, shapes and bytes of the state.
        origin: Where the weights are from: "checkpoint", "pretrained" or "random".
        data_config: timm's data configuration at test size.
    """

    model: torch.nn.Module
    name: str
    weights: str
    origin: str
    data_config: dict[str, Any]

    @property
    def num_classes(self) -> int:
        """Length of the model's answer."""
        classes: Any = self.model.num_classes
        return int(classes)


def build_subject(
    name: str,
    *,
    checkpoint: Path | None = None,
    pretrained: bool = False,
    num_classes: int | None = None,
    img_size: int | None = None,
    **model_kwargs: Any,
) -> Subject:
    """Build a timm model with its weights; without either source they are random.

    Args:
        name: A name that timm knows.
        checkpoint: File of the weights; averaged ones in it are preferred.
        pretrained: Take timm's released weights.
        num_classes: Of the head, where it is not the model's own.
        img_size: Side of the input, where it is not the model's own.
        **model_kwargs: More arguments of the model.

    Raises:
        UsageError: There is no such model, or the weights are not to be had or do not fit.
    """
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=1)
        raise UsageError(
            f"timm has no model {name}" + (f"; did you mean {near[0]}?" if near else ".")
        )
    model = _create(name, pretrained, num_classes, img_size, model_kwargs)
    origin = "pretrained" if pretrained else "random"
    if checkpoint is not None:
        _load(model, name, checkpoint)
        origin = "checkpoint"
    released: Any = model.pretrained_cfg
    tag = released.get("tag") if pretrained else None
    config = resolve_model_data_config(model, use_test_size=True)
    if img_size is not None:
        config["input_size"] = (config["input_size"][0], img_size, img_size)
    full = named(f"{architecture}.{tag}" if tag else name, model_kwargs)
    return Subject(model.eval(), full, weights_digest(model), origin, config)


def _create(
    name: str,
    pretrained: bool,
    num_classes: int | None,
    img_size: int | None,
    model_kwargs: dict[str, Any],
) -> torch.nn.Module:
    wanted = dict(model_kwargs)
    if num_classes is not None:
        wanted["num_classes"] = num_classes
    sized = wanted if img_size is None else wanted | {"img_size": img_size}
    try:
        try:
            model: torch.nn.Module = timm.create_model(name, pretrained=pretrained, **sized)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            # Models of fixed input take img_size; convolutional ones neither know nor need it.
            model = timm.create_model(name, pretrained=pretrained, **wanted)
    # Hubs, caches and constructors fail with errors of many kinds; all mean that there is no model.
    except Exception as error:
        what = "released weights cannot be had" if pretrained else "cannot be built"
        raise UsageError(f"{name}: {what}: {_first_line(error)}") from error
    return model


def _load(model: torch.nn.Module, name: str, checkpoint: Path) -> None:
    if not checkpoint.is_file():
        raise UsageError(f"--checkpoint: no file {checkpoint}.")
    try:
        state = load_state_dict(str(checkpoint), use_ema=True)
    # A damaged file raises whatever the part of it raises that is read first.
    except Exception as error:
        raise UsageError(
            f"--checkpoint {checkpoint} cannot be read: {_first_line(error)}"
        ) from error
    try:
        state = engine.fitted(state, model)
    except ValueError as error:
        raise UsageError(f"--checkpoint {checkpoint} is not of {name}: {error}") from error
    own = model.state_dict()
    trouble = []
    for what, names in (
        ("missing", own.keys() - state.keys()),
        ("unknown", state.keys() - own.keys()),
    ):
        if names:
            trouble.append(f"{len(names)} entries {what} ({min(names)})")
    for key in sorted(own.keys() & state.keys()):
        if own[key].shape != state[key].shape:
            shapes = f"{tuple(state[key].shape)}, not {tuple(own[key].shape)}"
            trouble.append(f"{key} is {shapes}")
            break
    if trouble:
        raise UsageError(f"--checkpoint {checkpoint} is not of {name}: {'; '.join(trouble)}.")
    model.load_state_dict(state)


def weights_digest(model: torch.nn.Module) -> str:
    """SHA-256 over the state: the same for the same numbers, whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
