"""What a model is, for the cache: its state, its plain attributes, and what it says to pictures."""

import hashlib
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robustness.rules.randomness import drawing
from vit_ls.config import ConfigError
from vit_ls.errors import one_line

DRAWS = 4
"""How often a model is asked about the same pictures, to find random numbers."""

NEAR = 1e-4
"""How far two answers may be apart, of their largest: rounding, no other model."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, np.generic)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over the state: the same for the same numbers, whatever file they came from.

    Raises:
        ConfigError: An entry of the state is of a kind that has no bytes.
    """
    whole = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        try:
            whole.update(_bytes_of(name, value))
        # Tensors of odd layouts and foreign objects refuse in many ways.
        except Exception as error:
            kind = type(value).__name__
            raise ConfigError(
                f"the state entry {name} ({kind}) cannot be hashed: {one_line(error)}"
            ) from error
    return whole.hexdigest()


def _bytes_of(name: str, value: Any) -> bytes:
    if isinstance(value, Tensor):
        head = f"{name} {value.dtype} {tuple(value.shape)}\n".encode()
        if value.is_quantized:
            # What the integers stand for: a number for all, or one for each channel.
            each = value.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
            scale = value.q_per_channel_scales() if each else torch.tensor(value.q_scale())
            zero = value.q_per_channel_zero_points() if each else torch.tensor(value.q_zero_point())
            parts = {"scale": scale, "zero": zero, "integers": value.int_repr()}
            return head + b"".join(_bytes_of(part, parts[part]) for part in parts)
        flat = value.detach().cpu().contiguous().reshape(-1)
        return head + flat.view(torch.uint8).numpy().tobytes()
    head = f"{name} {type(value).__name__}\n".encode()
    if isinstance(value, _PLAIN):
        return head + repr(value).encode()
    if isinstance(value, (list, tuple)):
        return head + b"".join(_bytes_of(str(i), part) for i, part in enumerate(value))
    if isinstance(value, dict):
        return head + b"".join(_bytes_of(repr(key), value[key]) for key in value)
    return head + pickle.dumps(value)


def plain_state(model: nn.Module) -> dict[str, str]:
    """What modules hold beside their state: plain attributes, and buffers that are not saved.

    Numbers, texts, types of numbers, and lists, tuples and sets of them, of the module or of its
    class. Other objects are not looked into.
    """
    found: dict[str, str] = {}
    saved = model.state_dict().keys()
    for path, module in model.named_modules():
        for kind in reversed(type(module).__mro__[: type(module).__mro__.index(nn.Module)]):
            found |= _plain_of(path, vars(kind))
        found |= _plain_of(path, vars(module))
    for name, buffer in model.named_buffers():
        if name not in saved:
            found[f"buffer {name}"] = hashlib.sha256(_bytes_of(name, buffer)).hexdigest()
    return found


def _plain_of(path: str, held: Any) -> dict[str, str]:
    texts = {
        name: _text(value)
        for name, value in held.items()
        if name not in _OF_EVERY_MODULE and not name.startswith("__")
    }
    return {f"{path}.{name}": text for name, text in texts.items() if text is not None}


def _text(value: Any) -> str | None:
    """A plain value as text; None for another one."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        texts = [_text(part) for part in value]
        inside = [text for text in texts if text is not None]
        if len(inside) < len(texts):
            return None
        ordered = sorted(inside) if isinstance(value, (set, frozenset)) else inside
        return f"{type(value).__name__}({', '.join(ordered)})"
    return None


def answers(model: nn.Module, pictures: Sequence[Tensor]) -> Tensor:
    """Scores of each picture, float32 on the CPU: [pictures, classes].

    Raises:
        ConfigError: The answer has another shape.
    """
    place = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    alike = len({picture.shape for picture in pictures}) == 1
    batches = [torch.stack(list(pictures))] if alike else [picture[None] for picture in pictures]
    with torch.inference_mode():
        found = [_scores(model(batch.to(place)), len(batch)) for batch in batches]
    return torch.cat(found)


def _scores(found: Any, images: int) -> Tensor:
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != images:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(f"the model must answer with scores [B, classes], got {got}.")
    return found.float().cpu()


def check_steady(model: nn.Module, pictures: Sequence[Tensor], name: str) -> Tensor:
    """The model's answers, where it gives the same ones each time.

    Raises:
        ConfigError: It draws random numbers, or its answers differ.
    """
    first, drew = drawing(lambda: answers(model, pictures), 0)
    why = "draws random numbers" if drew else ""
    for seed in range(1, 1 if drew else DRAWS):
        again, _ = drawing(lambda: answers(model, pictures), seed)
        if not near(again, first):
            why = "gives another"
    if why:
        raise ConfigError(f"{name} must answer the same to the same image in eval mode, and {why}.")
    return first


def near(one: Tensor, other: Tensor) -> bool:
    """Whether two answers are one but for rounding."""
    if one.shape != other.shape:
        return False
    finite = other[other.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(one, other, rtol=0, atol=NEAR * scale, equal_nan=True)
