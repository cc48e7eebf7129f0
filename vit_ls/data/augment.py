"""timm's training transforms, mended for Pillow 13; their errors name the operation."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from PIL import Image
from timm.data import create_transform
from timm.data.auto_augment import AugmentOp
from torchvision.transforms import Compose

from vit_ls.config import TrainConfig
from vit_ls.errors import blamed_on


class AugmentationError(RuntimeError):
    """An augmentation fails; the message names the operation and its argument."""


class NamedSteps:
    """Transforms in a row; where one fails, an AugmentationError names it.

    Args:
        steps: Each takes an image and returns one; operations of timm's policies inside them are
            named with the argument that was drawn.
    """

    def __init__(self, steps: Iterable[Callable[[Any], Any]]) -> None:
        self.steps = list(steps)
        # Made once: writing a transform out takes longer than many of them.
        self._names = [type(one).__name__ if _policy_ops(one) else str(one) for one in self.steps]
        for step in self.steps:
            for op in _policy_ops(step):
                operation: Any = _NamedOperation(op.name, op.aug_fn)
                op.aug_fn = operation

    def take_first(self) -> Callable[[Any], Any]:
        """The first step, which is none of these from now on."""
        self._names.pop(0)
        return self.steps.pop(0)

    def __call__(self, image: Any) -> Any:
        """The image after all steps."""
        for step, name in zip(self.steps, self._names, strict=True):
            # Whatever a transform raises is about its settings: the image was read and decoded.
            with blamed_on(f"{name} fails", AugmentationError):
                image = step(image)
        return image

    def __repr__(self) -> str:
        return " ".join(map(str, self.steps))


class _NamedOperation:
    """An operation of a policy: says its name and argument where it fails."""

    def __init__(self, name: str, function: Any) -> None:
        self.name, self.function = name, function

    def __call__(self, image: Image.Image, *level: Any, **settings: Any) -> Image.Image:
        # The policies ask for 0 bits at their strongest, which left a black image until Pillow 13
        # refused it. This branch can go when timm's own `posterize` takes 0 bits: then
        # `test_timm_still_asks_pillow_for_bits_that_it_refuses` fails.
        if self.name.startswith("Posterize") and level[0] < 1:
            return Image.new(image.mode, image.size)
        # As above: timm, Pillow and numpy raise what they like.
        with blamed_on(f"{self.name}({', '.join(map(str, level))}) fails", AugmentationError):
            result: Image.Image = self.function(image, *level, **settings)
        return result


def train_transform(config: TrainConfig, data_config: dict[str, Any]) -> Any:
    """Timm's training transform for uint8 batches; in three parts with `--aug-splits`."""
    interpolation = config.train_interpolation
    if config.no_aug:
        interpolation = data_config["interpolation"]
    mean = tuple(data_config["mean"])
    if data_config["input_size"][0] == 1:
        mean = (sum(mean) / len(mean),)  # a grey image is filled with one value
    made = create_transform(
        data_config["input_size"],
        interpolation=interpolation,
        mean=mean,
        separate=config.aug_splits > 0,
        **augmentation(config),
    )
    return tuple(map(named, made)) if config.aug_splits else named(made)


def augmentation(config: TrainConfig) -> dict[str, Any]:
    """What timm's factories of transforms and loaders are told."""
    return {
        "is_training": True,
        "use_prefetcher": True,
        "no_aug": config.no_aug,
        "train_crop_mode": config.train_crop_mode,
        "scale": tuple(config.scale),
        "ratio": tuple(config.ratio),
        "hflip": config.hflip,
        "vflip": config.vflip,
        "color_jitter": config.color_jitter or None,
        "color_jitter_prob": config.color_jitter_prob,
        "grayscale_prob": config.grayscale_prob,
        "gaussian_blur_prob": config.gaussian_blur_prob,
        "auto_augment": config.aa or None,
    }


def named(transform: Any) -> NamedSteps:
    """The same transform, with errors that say where."""
    return NamedSteps(transform.transforms if isinstance(transform, Compose) else [transform])


def _policy_ops(step: Any) -> list[AugmentOp]:
    """The operations of AutoAugment (a list of lists), RandAugment or AugMix; else none."""
    ops = [*getattr(step, "ops", []), *chain.from_iterable(getattr(step, "policy", []))]
    return [op for op in ops if isinstance(op, AugmentOp)]
