"""What a transform does to the shape of pictures, in words that are read off the steps it runs."""

from typing import Any

from PIL import Image
from timm.data.transforms import CenterCropOrPad, MaybeToTensor, ResizeKeepRatio
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize

from robustness.data.images import probe_picture

_NOT_SHAPE = (MaybeToTensor, Normalize)


def geometry(transform: Compose, side: int | None, *, channels: int = 3) -> str:
    """What becomes of pictures before they are numbers.

    Args:
        transform: One of timm's for evaluation.
        side: Height and width of the pictures; None where they vary.
        channels: 3 for RGB, 1 for grey.
    """
    steps = [step for step in transform.transforms if not isinstance(step, _NOT_SHAPE)]
    if side is None:
        return ", ".join(_of_any_size(step) for step in steps)
    picture = probe_picture(side, side).convert("L" if channels == 1 else "RGB")
    words = []
    cropped = False
    for step in steps:
        changed = step(picture)
        if changed.size != picture.size or changed.tobytes() != picture.tobytes():
            words.append(_of_one_size(step, picture, changed))
            cropped |= isinstance(step, (CenterCrop, CenterCropOrPad))
        picture = changed
    if not words:
        return f"fed unchanged at {_size(picture)}"
    return ", ".join(words if cropped else [*words, "no crop"])


def _of_one_size(step: Any, before: Image.Image, after: Image.Image) -> str:
    if isinstance(step, (Resize, ResizeKeepRatio)):
        return f"resized {_size(before)} -> {_size(after)} {_how(step)}"
    if isinstance(step, CenterCrop):
        return f"the centre {_size(after)} of {_size(before)} cut out"
    return f"{_size(before)} -> {_size(after)} by {step}"


def _of_any_size(step: Any) -> str:
    if isinstance(step, Resize):
        how = _how(step)
        if isinstance(step.size, int):
            return f"shorter side resized to {step.size} {how}"
        height, width = step.size
        return f"resized to {height}x{width} {how}, whatever its proportions"
    if isinstance(step, ResizeKeepRatio):
        height, width = step.size
        fit = "fit into" if step.longest else "cover"
        return f"resized to {fit} {height}x{width} {_how(step)}"
    if isinstance(step, CenterCrop):
        height, width = step.size
        return f"the centre {height}x{width} cut out"
    if isinstance(step, CenterCropOrPad):
        height, width = step.size
        return f"the centre {height}x{width} cut out, padded where there is less"
    return str(step)


def _how(step: Any) -> str:
    how: str = step.interpolation.value
    return how


def _size(picture: Image.Image) -> str:
    return f"{picture.height}x{picture.width}"
