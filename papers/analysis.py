"""The papers' own analyses, measured: each a CSV and a plot.

    python -m papers.analysis
    python -m papers.analysis --models cvt_ls_13 --checkpoint best.pth --images FOLDER
    python -m papers.analysis --models test_vil_ls --checkpoint best.pth --digits

norms: norms of projected over window keys and values by layer, with DualLN and without (figure 2 of
arXiv:2107.02192). cosine: mean pairwise cosine of patch tokens by block, long-short against full
attention (its figure 6). memory: what a forward keeps for the backward pass by resolution, with
explicit scores (its figure 7). shares: attention on projected tokens by layer. length: scores of
composite slices by length (figure 4 of the Composite Slice Transformer), counted, not timed.
Without a checkpoint models are untrained; without images scikit-learn's are taken (extra `demo`),
or its digits. Several analyses are drawn into analysis.png together, too.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm import create_model
from torch import Tensor, nn

import vit_ls
from papers.analysis_report import Row, draw
from vit_ls import job
from vit_ls.attention import LongShortAttention
from vit_ls.blocks import Block
from vit_ls.config import WEIGHTS, WEIGHTS_HELP, ConfigError
from vit_ls.count import explicit_attention, saved_activations
from vit_ls.data.digits import Digits
from vit_ls.data.pictures import PictureError, read_picture
from vit_ls.grid import num_windows
from vit_ls.ops import merge_heads, split_heads
from vit_ls.run import built, check_model_name
from vit_ls.run.folder import write_rows

ANALYSES = ("norms", "cosine", "memory", "shares", "length")
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
SIZES = (32, 64, 128, 192, 256)
"""Sides in pixels for memory, of the small models."""


def read_images(folder: Path | None, model: Any, count: int = 8, *, digits: bool = False) -> Tensor:
    """The first images of a folder, in the order of their names, as a model takes them [B,3,H,W].

    Without a folder scikit-learn's photographs, or as many of its held-out digits.

    Raises:
        ConfigError: there is no image.
    """
    from torchvision.transforms.functional import normalize, to_tensor

    cfg = model.pretrained_cfg
    size = (cfg["input_size"][2], cfg["input_size"][1])
    images = _digits(count) if digits else _photographs(folder, count)
    scaled = (image.resize(size, Image.Resampling.BICUBIC) for image in images)
    return torch.stack([normalize(to_tensor(x), cfg["mean"], cfg["std"]) for x in scaled])


def _digits(count: int) -> list[Image.Image]:
    held_out = Digits(held_out=True)
    return [held_out[i][0] for i in range(count)]


def _photographs(folder: Path | None, count: int) -> list[Image.Image]:
    if folder is None:
        import sklearn.datasets

        folder = Path(sklearn.datasets.__file__).parent / "images"
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        raise ConfigError(f"--images must hold JPEG or PNG files, got {folder}.")
    images = []
    for file in files[:count]:
        try:
            images.append(read_picture(file))
        except PictureError as error:
            raise ConfigError(f"--images must hold images that Pillow reads, got {file}") from error
    return images


@torch.no_grad()
def norms(model: nn.Module, images: Tensor) -> list[Row]:
    """Mean norm of projected keys and values over that of the grid's, of each long-short layer.

    Norms are of whole tokens, all heads together, as DualLN's are.
    """
    grids: dict[str, Tensor] = {}

    def keep(name: str, inputs: tuple[Any, ...]) -> None:
        grids[name] = inputs[0]

    layers = {n: m for n, m in model.named_modules() if isinstance(m, LongShortAttention)}
    with ExitStack() as stack:
        for name, layer in layers.items():
            hook = layer.register_forward_pre_hook(lambda _, inputs, name=name: keep(name, inputs))
            stack.callback(hook.remove)
        with vit_ls.record(model) as records:
            model(images)
    rows: list[Row] = []
    for name, layer in layers.items():
        P = records[name].projection
        if P is None:
            continue
        kv = layer.qkv(grids[name])[1]
        kv = kv if layer.norm_kv is None else layer.norm_kv(kv)
        heads = (split_heads(x.flatten(1, 2), layer.num_heads) for x in kv)
        kv_bar = torch.stack([merge_heads(P @ x) for x in heads])
        if layer.norm_projected is not None:
            kv_bar = layer.norm_projected(kv_bar)
        for i, kind in enumerate(("keys", "values")):
            ratio = kv_bar[i].norm(dim=-1).mean() / kv[i].norm(dim=-1).mean()
            rows.append({"layer": name, "kind": kind, "ratio": float(ratio)})
    return rows


def cosine(model: nn.Module, images: Tensor) -> list[Row]:
    """Mean cosine of all pairs of different patch tokens of an image, after each block."""
    rows: list[Row] = []

    def measure(name: str, output: tuple[Tensor, Tensor | None]) -> None:
        x = nn.functional.normalize(output[0].flatten(1, 2).double(), dim=-1)
        N = x.shape[1]
        if N < 2:  # there is no pair
            return
        pairs = (x.sum(1).square().sum(-1) - N) / (N * (N - 1))
        rows.append({"block": name, "cosine": float(pairs.mean())})

    with ExitStack() as stack, torch.no_grad():
        for name, block in model.named_modules():
            if isinstance(block, Block):
                hook = block.register_forward_hook(
                    lambda _m, _i, out, name=name: measure(name, out)
                )
                stack.callback(hook.remove)
        model(images)
    return rows


def shares(model: nn.Module, images: Tensor) -> list[Row]:
    """Mean share of each part of attention by layer."""
    with torch.no_grad(), vit_ls.record(model) as records:
        model(images)
    return [
        {"layer": name, "part": part, "share": float(share.mean())}
        for name, layer in records.items()
        for part, share in layer.shares().items()
    ]


def memory(model: nn.Module, sizes: Sequence[int] = SIZES) -> list[Row]:
    """Mebibytes that a forward of one image keeps for the backward pass, with explicit scores."""
    with explicit_attention():
        return [
            {"side": side, "MiB": saved_activations(model, torch.zeros(1, 3, side, side)) / 2**20}
            for side in sizes
        ]


def length(slice_sizes: Sequence[int] = (8, 16, 32, 64)) -> list[Row]:
    """Scores of one head by length: N^2, and N L + (N / L)^2 of composite slices."""
    rows: list[Row] = [{"attention": "full", "length": N, "scores": N * N} for N in LENGTHS]
    for L in slice_sizes:
        rows += [
            {
                "attention": f"slices of {L}",
                "length": N,
                "scores": num_windows(N, L) * L * L + num_windows(N, L) ** 2,
            }
            for N in LENGTHS
        ]
    return rows


def _variants(
    name: str, checkpoint: Path | None, other: Mapping[str, Any], weights: str
) -> Iterator[tuple[str, Any]]:
    """A model, and where it is untrained the one to hold it against."""
    options: list[Mapping[str, Any]] = [{}]
    # ViL-LS has no form with full attention alone, and other models have neither option
    has = "cvt_ls" in name or ("vil_ls" in name and "dual_ln" in other)
    if checkpoint is None and other and has:
        options.append(other)
    for chosen in options:
        torch.manual_seed(0)
        title = ", ".join((name, *(f"{k}={v}" for k, v in chosen.items())))
        if checkpoint is None:
            yield title, create_model(name, **chosen).eval()
        else:
            model, which = built(checkpoint, name, weights=weights)
            yield f"{title}, {which} weights", model


def run(
    analysis: str,
    names: Sequence[str],
    checkpoint: Path | None,
    images: Path | None,
    *,
    digits: bool = False,
    weights: str = "best",
) -> list[Row]:
    """The rows of one analysis of all models."""
    if analysis == "length":
        return length()
    others: dict[str, dict[str, Any]] = {
        "norms": {"dual_ln": False},
        "cosine": {"attention": "full"},
        "memory": {"attention": "full"},
    }
    other = others.get(analysis, {})
    rows: list[Row] = []
    for name in names:
        for title, model in _variants(name, checkpoint, other, weights):
            found = (
                memory(model)
                if analysis == "memory"
                else {"norms": norms, "cosine": cosine, "shares": shares}[analysis](
                    model, read_images(images, model, digits=digits)
                )
            )
            rows += [{"model": title, **row} for row in found]
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Write the analyses that are asked for."""
    parser = argparse.ArgumentParser(
        "papers.analysis",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=ANALYSES, default=ANALYSES)
    add("--models", nargs="+", default=["test_cvt_ls"])
    add("--checkpoint", type=Path, help="weights of the one model of --models")
    add("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    add("--images", type=Path, help="a folder; default: scikit-learn's two")
    add("--digits", action="store_true", help="scikit-learn's digits instead of photographs")
    add("--out", type=Path, default=Path("output/analysis"))
    args = parser.parse_args(argv)
    for name in args.models:
        check_model_name(name)
    if args.checkpoint and len(args.models) != 1:
        raise ConfigError(f"--checkpoint must go with one model, got {len(args.models)}.")
    if args.weights != "best" and not args.checkpoint:
        raise ConfigError("--weights needs --checkpoint FILE.")
    if args.digits and args.images:
        raise ConfigError(f"--digits must go without --images, got {args.images}.")
    args.out.mkdir(parents=True, exist_ok=True)
    rows_of: dict[str, list[Row]] = {}
    for analysis in args.only:
        rows = run(
            analysis,
            args.models,
            args.checkpoint,
            args.images,
            digits=args.digits,
            weights=args.weights,
        )
        if not rows:
            raise ConfigError(f"--only {analysis} needs a model with such layers, got none.")
        write_rows(args.out / f"{analysis}.csv", rows)
        draw({analysis: rows}, args.out / f"{analysis}.png")
        rows_of[analysis] = rows
        sys.stdout.write(f"{analysis}: {len(rows)} rows\n")
    if len(rows_of) > 1:
        draw(rows_of, args.out / "analysis.png")


if __name__ == "__main__":
    sys.exit(job.command_line("papers.analysis", main))
