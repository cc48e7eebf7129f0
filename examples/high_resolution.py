"""A whole large image in one pass, against tiles; and what a pass costs from 512 to 4096 pixels.

    python examples/high_resolution.py             # seams, drawn into docs/high_resolution.png
    python examples/high_resolution.py --cost      # time and memory of a pass

The image is the retina that scikit-image ships (extra `examples`), or --image. The map of an
untrained CvT-LS-13 is taken of the whole image and of tiles put together again: what differs is
what tiles cannot see. For the cost, each model runs in a process of its own, one image on one
thread, beside ViT, Swin and Hiera of timm, and its CPU time is taken; a size that would take too
long or too much memory is left out and its row says so.
"""

import argparse
import csv
import ctypes
import io
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm import create_model
from torch import Tensor, nn

import vit_ls  # noqa: F401 - registers the models
from vit_ls import job
from vit_ls.config import ConfigError
from vit_ls.run import create
from vit_ls.style import bare, markdown_table, picture, shades
from vit_ls.visualize.images import read_rgb
from vit_ls.whole import write_whole

ROOT = Path(__file__).parents[1]
SEAM_MODEL = "cvt_ls_13"
MODELS: Mapping[str, Mapping[str, Any]] = {
    "cvt_ls_13": {},
    "vil_ls_small": {"attention": "long_short"},
    "cst_vit_small_patch16_224": {},
    "vit_small_patch16_224": {},
    "vit_small_patch16_224 in windows": {
        "replace_attention": {
            "kind": "long_short",
            "options": {"window": 14, "rank": 0},
            "keep": (),
        }
    },
    "swin_tiny_patch4_window7_224": {},
    "hiera_tiny_224": {},
}
"""Of the cost: 20 to 29 million parameters each. What a name has behind a space is for people."""
SIZES = (512, 1024, 2048, 4096)
COLUMNS = ("model", "size", "cpu_s", "peak_mib", "note")


def read_image(path: Path | None) -> Image.Image:
    """An image as RGB; None for scikit-image's retina, 1411 x 1411.

    Raises:
        ConfigError: it is none, or scikit-image is not there.
    """
    if path is None:
        spec = find_spec("skimage")
        if spec is None or spec.origin is None:
            raise ConfigError("--image must be given, or scikit-image be there for its retina.")
        path = Path(spec.origin).parent / "data" / "retina.jpg"
    return read_rgb(path)


def as_tensor(image: Image.Image, side: int) -> Tensor:
    """An image resized to a square, normalised as ImageNet's are [1,3,side,side]."""
    from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    from torchvision.transforms.functional import normalize, to_tensor

    x = to_tensor(image.resize((side, side), Image.Resampling.BICUBIC))
    return normalize(x, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)[None]


@torch.inference_mode()
def whole_and_tiled(model: nn.Module, x: Tensor, tile: int) -> tuple[Tensor, Tensor]:
    """The last map of an image [1,3,S,S] in one pass and put together from tiles, [C,S/16,S/16]."""
    features: Any = model
    whole = features.forward_features(x)[0]
    rows = [
        torch.cat([features.forward_features(t) for t in strip.split(tile, 3)], 3)
        for strip in x.split(tile, 2)
    ]
    return whole, torch.cat(rows, 2)[0]


def differences(whole: Tensor, tiled: Tensor) -> Tensor:
    """Length of the difference of the maps over the mean length of the whole one's, [H,W]."""
    return (whole - tiled).norm(dim=0) / whole.norm(dim=0).mean()


def beside_seams(difference: Tensor, tile: int) -> tuple[float, float]:
    """Mean difference in tokens that touch an inner border of a tile, and in all others."""
    H, W = difference.shape
    row, column = torch.arange(H), torch.arange(W)
    touches = [((i % tile == 0) & (i > 0)) | ((i % tile == tile - 1) & (i < n - 1))
               for i, n in ((row, H), (column, W))]  # fmt: skip
    near = touches[0][:, None] | touches[1][None]
    return float(difference[near].mean()), float(difference[~near].mean())


def draw(image: Image.Image, whole: Tensor, tiled: Tensor, tile: int, path: Path) -> None:
    """The image, both maps in the colours of the whole one's first components, the difference."""
    pixels = whole.flatten(1).T
    center = pixels.mean(0)
    axes_of_colour = torch.linalg.svd(pixels - center, full_matrices=False).Vh[:3]
    shown = [(x.flatten(1).T - center) @ axes_of_colour.T for x in (whole, tiled)]
    low, high = shown[0].quantile(0.01, 0), shown[0].quantile(0.99, 0)
    difference = differences(whole, tiled)
    near, other = beside_seams(difference, tile // 16)
    title = f"Tiles change the map by {near:.0%} at their borders and by {other:.0%} elsewhere"
    note = (
        f"{SEAM_MODEL}, untrained, tiles of {tile} pixels: its last map, in the colours of the "
        "whole map's first three components. Percent of the mean length of a token."
    )
    with picture(path, title, across=4, height=2.8, note=note) as panels:
        panels[0].imshow(image.resize((448, 448)))
        for axes, x in zip(panels[1:3], shown, strict=True):
            colours = ((x - low) / (high - low)).clamp(0, 1)
            axes.imshow(colours.view(*whole.shape[1:], 3).numpy())
        drawn = panels[3].imshow(100 * difference.numpy(), cmap=shades(), vmin=0)
        panels[3].figure.colorbar(drawn, ax=panels, shrink=0.5, label="difference (%)")
        for axes, words in zip(panels, ("image", "one pass", "tiles", "difference"), strict=True):
            bare(axes, words)


def seams(image: Image.Image, side: int, tile: int, path: Path) -> None:
    """Draw the seams and print how large they are."""
    torch.manual_seed(0)
    model = create_model(SEAM_MODEL).eval()
    whole, tiled = whole_and_tiled(model, as_tensor(image, side), tile)
    draw(image, whole, tiled, tile, path)
    near, other = beside_seams(differences(whole, tiled), tile // 16)
    sys.stdout.write(
        f"{SEAM_MODEL}, untrained, {side} x {side} in tiles of {tile}: the maps differ by "
        f"{near:.1%} beside inner borders of tiles, by {other:.1%} elsewhere\nwritten: {path}\n"
    )


def predicted(found: Sequence[float]) -> float:
    """What the next size, of twice the side, will take: at least four times, else as it grew."""
    return found[-1] * max(4.0, found[-1] / found[-2] if len(found) > 1 else 4.0)


def measure(
    name: str, sizes: Sequence[int], seconds: float, gib: float, image: Path | None
) -> None:
    """Print a row of JSON for each size, from the smallest, of a process for this model alone.

    On one thread, whose CPU time other work on the machine disturbs less than the time that passes.
    """
    torch.set_num_threads(1)
    photo = read_image(image)
    _pass(name, sizes[0], photo)  # to warm up
    times: list[float] = []
    peaks: list[float] = []
    for size in sizes:
        row: dict[str, Any] = {"model": name, "size": size, "cpu_s": "", "peak_mib": ""}
        if times and predicted(times) > seconds:
            row["note"] = f"not run: about {predicted(times):.0f} s by the smaller sizes"
        elif peaks and predicted(peaks) > 1024 * gib:
            row["note"] = f"not run: about {predicted(peaks) / 1024:.0f} GiB by the smaller sizes"
        else:
            taken, peak = _pass(name, size, photo)
            times.append(taken)
            peaks.append(peak)
            row |= {"cpu_s": f"{taken:.2f}", "peak_mib": f"{peak:.0f}", "note": ""}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        if row["note"]:
            return


@torch.inference_mode()
def _pass(name: str, size: int, photo: Image.Image) -> tuple[float, float]:
    """CPU seconds of a pass, and MiB by which it exceeds what the process held before."""
    torch.manual_seed(0)
    model = create(create_model, name.split()[0], img_size=size, **MODELS[name]).eval()
    x = as_tensor(photo, size)
    ctypes.CDLL(None).malloc_trim(0)  # give back what an earlier pass left (glibc)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew (Linux)
    before = _mib("VmHWM")
    start = time.process_time()
    model(x)
    return time.process_time() - start, _mib("VmHWM") - before


def _mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of an earlier run; none where there is no file.

    Raises:
        ConfigError: it is not one that this program wrote.
    """
    if not path.exists():
        return []
    fault = ConfigError(f"--csv must be a file of examples/high_resolution.py, got {path}.")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise fault from error
    if any(set(row) != set(COLUMNS) for row in rows):
        raise fault
    return rows


def cost(args: argparse.Namespace) -> None:
    """Measure what the file lacks, each model in its own process; write each row as it comes."""
    rows = read_rows(args.csv)
    last = str(args.sizes[-1])
    done = {row["model"] for row in rows if row["note"] or row["size"] == last}
    rows = [row for row in rows if row["model"] in done]  # those that were cut off start anew
    args.csv.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("# torch", torch.__version__), ("# threads", 1), COLUMNS])
    csv.DictWriter(text, COLUMNS).writerows(rows)
    write_whole(args.csv, lambda file: file.write(text.getvalue().encode()))
    for name in args.models:
        if name in done:
            continue
        command = [sys.executable, __file__, "--measure", name, "--sizes", *map(str, args.sizes)]
        command += ["--seconds", str(args.seconds), "--gib", str(args.gib)]
        command += ["--image", str(args.image)] if args.image else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                row = json.loads(line)
                with args.csv.open("a", newline="", encoding="utf-8") as file:
                    csv.DictWriter(file, COLUMNS).writerow(row)
                rows.append(row)
        if child.returncode:
            sys.stderr.write(f"{name} ended with status {child.returncode}\n")
    sys.stdout.write(f"{table(rows)}\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """CPU seconds and GiB of each model by size, as Markdown."""
    sizes = sorted({int(row["size"]) for row in rows})
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        of_model = cells.setdefault(row["model"], {})
        of_model[int(row["size"])] = (
            row["note"] or f"{float(row['cpu_s']):.1f} s, {float(row['peak_mib']) / 1024:.2f} GiB"
        )
    shown = [
        (f"`{name}`", *(of_model.get(size, "") for size in sizes))
        for name, of_model in cells.items()
    ]
    head = ("model", *map(str, sizes))
    return markdown_table(head, shown, numbers=range(1, len(head)))


def main(argv: Sequence[str] | None = None) -> None:
    """Draw the seams, or measure the cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--image", type=Path, help="instead of scikit-image's retina")
    add("--side", type=int, default=1408, help="pixels that the image of the seams is brought to")
    add("--tile", type=int, default=352, help="side of a tile, in pixels")
    add("--picture", type=Path, default=ROOT / "docs" / "high_resolution.png")
    add("--cost", action="store_true", help="time and memory instead of the seams")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    add("--sizes", type=int, nargs="+", default=SIZES, help="each twice the one before")
    add("--seconds", type=float, default=60, help="a pass that would take longer is left out")
    add("--gib", type=float, default=14, help="likewise of memory")
    add("--csv", type=Path, default=Path("output/high_resolution.csv"), help="continued")
    add("--measure", choices=MODELS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.tile < 16 or args.tile % 16 or args.side % args.tile:
        raise ConfigError(
            f"--tile must be a multiple of 16 that divides --side, got {args.tile} and {args.side}."
        )
    if any(b != 2 * a for a, b in zip(args.sizes, args.sizes[1:], strict=False)):
        raise ConfigError(f"--sizes must each be twice the one before, got {list(args.sizes)}.")
    if min(args.sizes) < 32 or any(size % 32 for size in args.sizes):
        raise ConfigError(f"--sizes must be multiples of 32, got {list(args.sizes)}.")
    if args.measure:
        measure(args.measure, args.sizes, args.seconds, args.gib, args.image)
    elif args.cost:
        read_image(args.image)
        cost(args)
    else:
        seams(read_image(args.image), args.side, args.tile, args.picture)


if __name__ == "__main__":
    sys.exit(job.command_line("high_resolution.py", main))
