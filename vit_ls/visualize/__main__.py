"""See what a model attends to, from its own forward pass.

    python -m vit_ls.visualize
    python -m vit_ls.visualize --model cvt_ls_13 --checkpoint best.pth --image cat.jpg --out maps/

Writes overlays of the dynamic projection of each stage, one query's attention part by part with the
shares, the slice-to-slice map of composite slices, a rollout over all layers, and a page in which
a mouse, a finger or keys move the query. Without an image, scikit-learn's is taken (extra `demo`);
without a checkpoint the model is untrained. Exit status: 0 done, 2 unusable settings, 3 no
matplotlib.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm import create_model

import vit_ls
from vit_ls import job
from vit_ls.config import WEIGHTS, WEIGHTS_HELP, ConfigError, mapping
from vit_ls.errors import check_packages
from vit_ls.recording import Attention, Part
from vit_ls.run import built, check_model_name, made
from vit_ls.visualize.images import as_input, cropped, photograph
from vit_ls.visualize.rollout import rollout


def main(argv: Sequence[str] | None = None) -> None:
    """Write the pictures."""
    args = _parse_args(argv)
    check_packages("vit_ls.visualize", "matplotlib", extra="demo")
    check_model_name(args.model)
    image = photograph(args.image)
    model, weights = _model(args)
    size = tuple(args.img_size or model.pretrained_cfg["input_size"][1:])
    image = cropped(image, size)
    try:
        with torch.inference_mode(), vit_ls.record(model) as records:
            model(as_input(image, model))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    kept = vit_ls.replaceable(model)
    if kept:
        sys.stderr.write(f"the rollout leaves out blocks that kept their attention: {kept}\n")
    layer = _layer(records, args.layer)
    _check_head(layer, args.head)
    args.out.mkdir(parents=True, exist_ok=True)
    shares = _write(records, layer, image, args, from_token=_from_token(model))
    said = ", ".join(f"{part} {share:.1%}" for part, share in shares.items())
    sys.stdout.write(f"{args.model} ({weights}), {layer.name}: {said}\nwritten: {args.out}\n")


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "vit_ls.visualize",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", default="cvt_ls_13", help="a model that timm knows")
    add("--checkpoint", type=Path, help="weights, of this package's runs or of timm's")
    add("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    add("--model-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="more arguments")
    add("--image", type=Path, help="default: scikit-learn's picture of a temple")
    add("--img-size", type=int, nargs=2, metavar=("H", "W"), help="default: the model's")
    add("--layer", help="such as stages.0.blocks.0.attn; default: a large one that fits the page")
    add("--head", type=int, help="one head instead of the mean of all")
    add("--query", type=int, nargs=2, metavar=("ROW", "COLUMN"), help="token; default: the middle")
    add("--out", type=Path, default=Path("output/maps"), help="a folder")
    return parser.parse_args(argv)


def _model(args: argparse.Namespace) -> tuple[Any, str]:
    """The model in eval mode, and what its weights are."""
    if args.img_size and min(args.img_size) < 1:
        raise ConfigError(f"--img-size must be positive, got {args.img_size}.")
    torch.manual_seed(0)
    kwargs = mapping(args.model_kwargs, "--model-kwargs")
    if args.checkpoint:
        model, which = built(args.checkpoint, args.model, weights=args.weights, changes=kwargs)
        return model, f"{args.checkpoint}, {which} weights"
    if args.weights != "best":
        raise ConfigError("--weights needs --checkpoint FILE.")
    return made(args.model, lambda: create_model(args.model, **kwargs)).eval(), "untrained"


def _layer(records: Mapping[str, Attention], name: str | None) -> Attention:
    from vit_ls.visualize.page import LARGEST

    if name is None:
        return next((r for r in records.values() if r.grid[0] * r.grid[1] <= LARGEST),
                    list(records.values())[-1])  # fmt: skip
    if name not in records:
        known = list(records)
        raise ConfigError(
            f"--layer must be one of {len(known)} from {known[0]} to {known[-1]}, got {name!r}."
        )
    return records[name]


def _check_head(layer: Attention, head: int | None) -> None:
    heads: Any = layer.layer.num_heads
    if head is not None and not 0 <= head < heads:
        raise ConfigError(f"--head must be from 0 to {heads - 1} in {layer.name}, got {head}.")


def _from_token(model: Any) -> bool:
    return getattr(model, "global_pool", "") == "token"


def _write(
    records: Mapping[str, Attention],
    layer: Attention,
    image: Image.Image,
    args: argparse.Namespace,
    *,
    from_token: bool,
) -> Mapping[Part, float]:
    from vit_ls.visualize import pictures
    from vit_ls.visualize.page import LARGEST, write_page

    H, W = layer.grid
    place = tuple(args.query or (H // 2, W // 2))
    try:
        shares = pictures.query(layer, image, place, args.out / "query.png", args.head)
    except ValueError as error:
        raise ConfigError(f"--query: {error}") from error
    first: dict[str, Attention] = {}
    for record in records.values():
        first.setdefault(record.name.split(".blocks.")[0], record)
    for stage, record in first.items():
        shown = layer if args.layer and layer.name.startswith(f"{stage}.") else record
        name = stage.replace("stages.", "stage_")
        heads: Any = shown.layer.num_heads
        head = args.head if args.head is not None and args.head < heads else None
        if shown.projection is not None:
            pictures.projection(shown, image, args.out / f"projection_{name}.png", head)
        if "slices" in shown.shares():
            pictures.slices(shown, args.out / f"slices_{name}.png", head)
    counts = rollout(records, from_token=from_token)[0]
    pictures.relevance(counts, image, args.out / "rollout.png")
    if H * W <= LARGEST:
        write_page(layer, image, args.model, args.out / "index.html")
    else:
        sys.stderr.write(f"no page: {layer.name} has {H} x {W} tokens, more than {LARGEST}\n")
    return shares


if __name__ == "__main__":
    sys.exit(job.command_line("vit_ls.visualize", main))
