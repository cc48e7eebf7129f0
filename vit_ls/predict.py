"""Name what a photo shows: the best classes of a model, with a bar for each.

    python -m vit_ls.predict photo.jpg --checkpoint output/RUN/model_best.pth.tar
    python -m vit_ls.predict photo.jpg --model cvt_13 --pretrained

The photo is prepared as validate.py prepares it. Exit status: 0 done, 1 a checkpoint cannot be
used, 2 unusable settings.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from timm import create_model
from timm.data import ImageNetInfo, create_transform, infer_imagenet_subset
from timm.data import resolve_model_data_config as data_config_of
from timm.data.loader import adapt_to_chs

import vit_ls  # noqa: F401 - registers the models
from vit_ls import job
from vit_ls.config import WEIGHTS, WEIGHTS_HELP, ConfigError, mapping
from vit_ls.data.pictures import PictureError, read_picture
from vit_ls.run import as_trained, built, check_model_name, load, made, run_settings

_BAR = 40
"""Characters of a bar for 100 %: ASCII, which every terminal shows."""


class Guess(NamedTuple):
    """A class, and how sure a model is of it."""

    name: str
    probability: float
    """From 0 to 1, by a softmax over all classes."""


def predict(
    model: Any, image: str | Path | Image.Image, *, top: int = 5, turn: bool = False
) -> list[Guess]:
    """Give the classes that a model finds most likely for one image, the best first.

    Args:
        model: An image classifier of `vit_ls.load` or timm's `create_model`, in eval mode.
        image: A file, or a picture of Pillow's, which is taken as it is.
        top: How many classes.
        turn: Turn a file's picture as its EXIF entry says; training and validate.py do not.

    Raises:
        ValueError: The model is in training mode or no classifier, or what it gives is not finite.
        PictureError: The file cannot be read.
    """
    if model.training:
        raise ValueError("model must be in eval mode: model.eval().")
    run = getattr(model, "run", None)
    data_config = run.data_config if run else data_config_of(model, use_test_size=True)
    channels = data_config["input_size"][0]
    mode = "L" if channels == 1 else "RGB"
    adapted = {key: adapt_to_chs(data_config[key], channels) for key in ("mean", "std")}
    if isinstance(image, Image.Image):
        image = image.convert(mode)
    else:
        image = read_picture(image, mode, turn=turn)
    pixels = create_transform(**{**data_config, **adapted})(image)[None]
    with torch.inference_mode():
        logits = model(pixels.to(next(model.parameters()).device))
    if not isinstance(logits, torch.Tensor) or logits.shape != (1, model.num_classes):
        raise ValueError("model must give one logit for each class: it is no classifier.")
    if not logits.isfinite().all():
        raise ValueError("the model must give finite logits, got NaN or infinity.")
    best = logits[0].float().softmax(0).topk(min(top, model.num_classes))
    names = _class_names(model)
    return [
        Guess(names.get(index, f"class {index}"), probability)
        for probability, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _class_names(model: Any) -> dict[int, str]:
    """The classes of the model's run, or ImageNet's where the number of classes is one of its."""
    run = getattr(model, "run", None)
    if run:
        said: Any = ImageNetInfo().label_descriptions(as_dict=True)  # its folders are wnids
        return {index: said.get(name, name) for name, index in (run.classes or {}).items()}
    subset = infer_imagenet_subset(model)
    return dict(enumerate(ImageNetInfo(subset).label_descriptions())) if subset else {}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the best classes of each photo."""
    args = _parse_args(argv)
    if args.top < 1:
        raise ConfigError(f"--top must be at least 1, got {args.top}.")
    model, weights = _model(args)
    for path in args.photo:
        try:
            guesses = predict(model, path, top=args.top, turn=args.turn)
        except PictureError as error:
            raise ConfigError(f"{path} must be an image that Pillow reads: {error}") from error
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from error
        sys.stdout.write(f"{path} ({weights})\n")
        for name, probability in guesses:
            bar = "#" * round(_BAR * probability)
            sys.stdout.write(f"{probability:7.1%}  {bar:{_BAR}}  {name}\n")


def _model(args: argparse.Namespace) -> tuple[Any, str]:
    """The model in eval mode, and what its weights are."""
    if sum((args.checkpoint is not None, args.pretrained, args.random_weights)) != 1:
        raise ConfigError(
            "name the weights by one of --checkpoint FILE and --pretrained "
            "(--random-weights: none, to try the command)."
        )
    if args.weights != "best" and not args.checkpoint:
        raise ConfigError("--weights needs --checkpoint FILE.")
    if args.model:
        check_model_name(args.model)
    kwargs = mapping(args.model_kwargs, "--model-kwargs")
    if args.checkpoint and run_settings(args.checkpoint):
        if kwargs:
            raise ConfigError("--model-kwargs cannot go with a run: it has its own.")
        if args.model:
            as_trained(args.checkpoint, args.model)  # refuses the name of another model
        model = load(args.checkpoint, weights=args.weights)
        return model, f"{args.checkpoint}, {model.run.weights} weights"
    if not args.model:
        raise ConfigError("--model must be given: only a checkpoint of train.py names its own.")
    if args.checkpoint:
        model, which = built(args.checkpoint, args.model, weights=args.weights, changes=kwargs)
        return model, f"{args.checkpoint}, {which} weights"
    torch.manual_seed(0)
    make = {"pretrained": args.pretrained, **kwargs}
    model = made(args.model, lambda: create_model(args.model, **make)).eval()
    return model, f"{args.model}, {'published' if args.pretrained else 'random'} weights"


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "vit_ls.predict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("photo", type=Path, nargs="+", help="an image file")
    add("--model", help="a model that timm knows; default: that of the checkpoint's run")
    files = ("--checkpoint", "--pretrained-path")  # errors of weights name either
    add(*files, type=Path, metavar="FILE", help="weights of a run, or released ones")
    add("--pretrained", action="store_true", help="the published weights (needs a network)")
    add("--random-weights", action="store_true", help="no weights, to try the command")
    add("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    add("--top", type=int, default=5, metavar="N", help="how many classes; default: 5")
    add("--turn", action="store_true", help="turn the photo as its EXIF entry says")
    add("--model-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="more arguments")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(job.command_line("vit_ls.predict", main))
