"""Features as the classifier takes them: what it is called with while the model answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vit_ls.config import ConfigError

KEEPS = ("logits", "features", "both")
_CLOSE = 1e-3
"""How far the classifier's answer to the features may be from the model's, of its largest."""


def parts(keep: str) -> tuple[str, ...]:
    """What of a model's answer is kept: "logits", "features" or both of them."""
    return {"": (), "both": ("logits", "features")}.get(keep, (keep,))


def classifier_of(model: nn.Module) -> nn.Linear:
    """The linear layer that makes the logits of the features, as timm's models name it.

    Raises:
        ConfigError: There is none.
    """
    named = getattr(model, "get_classifier", None)
    found = None if named is None else named()
    if not isinstance(found, nn.Linear):
        got = "no get_classifier()" if named is None else type(found).__name__
        raise ConfigError(
            f"--keep features needs a model whose get_classifier() is a linear layer, got {got}."
        )
    return found


@contextmanager
def captured(classifier: nn.Module | None) -> Iterator[list[Tensor]]:
    """What a classifier is called with inside the block; nothing where there is none."""
    seen: list[Tensor] = []
    if classifier is None:
        yield seen
        return

    def see(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    hook = classifier.register_forward_pre_hook(see)
    try:
        yield seen
    finally:
        hook.remove()


def check_features(model: nn.Module, example: Tensor) -> nn.Linear:
    """Try that a model's classifier sees features [B, D] once a pass, and makes its answer of them.

    Args:
        model: As it is evaluated.
        example: [C, H, W].

    Raises:
        ConfigError: It does not.
    """
    classifier = classifier_of(model)
    with torch.inference_mode(), captured(classifier) as seen:
        logits = model(example[None].to(classifier.weight.device))
    whole = len(seen) == 1 and seen[0].ndim == 2
    with torch.inference_mode():
        again = classifier(seen[0]) if whole else logits
    near = torch.allclose(again, logits, rtol=0, atol=_CLOSE * float(logits.abs().max()))
    if not whole or not near:
        raise ConfigError("--keep features: the model's answer is not its classifier's alone.")
    return classifier
