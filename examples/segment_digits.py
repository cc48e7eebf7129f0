"""Dense prediction on real images in minutes: which digit does each pixel belong to?

    python examples/segment_digits.py

Handwritten digits are pasted on a canvas in random places and sizes. A backbone of this package
with a feature pyramid learns to locate and classify them, from training digits; what is reported,
and drawn into docs/segment_digits.png, is held-out ones. Needs the extra `demo`.
"""

import argparse
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torchvision.ops import FeaturePyramidNetwork

import vit_ls  # noqa: F401  registers the models
from vit_ls.data.digits import Digits
from vit_ls.style import COLOURS, bare, picture

HEIGHT, WIDTH = 96, 128
CLASSES = 11
"""Background, and ten digits."""

_INK = 0.35
"""Brightness from which a pixel belongs to its digit."""


class Segmenter(nn.Module):
    """A backbone's maps -> feature pyramid -> logits of the finest map, enlarged to the image."""

    def __init__(self, name: str, dim: int = 64) -> None:
        super().__init__()
        body: Any = timm.create_model(name, features_only=True, in_chans=1)
        self.body: nn.Module = body
        self.pyramid = FeaturePyramidNetwork(body.feature_info.channels(), dim)
        self.head = nn.Conv2d(dim, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B,1,H,W] -> [B,11,H,W]."""
        maps = OrderedDict((str(i), m) for i, m in enumerate(self.body(x)))
        logits = self.head(self.pyramid(maps)["0"])
        return F.interpolate(logits, x.shape[2:], mode="bilinear", align_corners=False)


class Canvases:
    """Draws canvases of digits, the same ones for the same seed."""

    def __init__(self, *, held_out: bool, seed: int) -> None:
        self.digits = Digits(held_out=held_out, mode="L")
        self.rng = np.random.default_rng(seed)

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """Images [number,1,96,128] from 0 to 1, and the class of each pixel [number,96,128]."""
        pairs = [self._one() for _ in range(number)]
        images = torch.from_numpy(np.stack([image for image, _ in pairs]))[:, None]
        return images, torch.from_numpy(np.stack([labels for _, labels in pairs]))

    def _one(self) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
        image = self.rng.uniform(0, 0.2, (HEIGHT, WIDTH)).astype(np.float32)
        labels = np.zeros((HEIGHT, WIDTH), np.int64)
        for _ in range(self.rng.integers(6, 13)):
            digit, label = self.digits[int(self.rng.integers(len(self.digits)))]
            side = int(self.rng.integers(24, 49))
            pixels = np.asarray(digit.resize((side, side), Image.Resampling.BICUBIC)) / 255
            top = self.rng.integers(HEIGHT - side + 1)
            left = self.rng.integers(WIDTH - side + 1)
            place = np.s_[top : top + side, left : left + side]
            ink = pixels > _INK
            if labels[place].any():  # no digit on another
                continue
            image[place] = np.where(ink, pixels, image[place])
            labels[place] = np.where(ink, label + 1, 0)
        return image, labels


def train(model: nn.Module, steps: int, batch_size: int = 8) -> None:
    """AdamW at a rate that rises for a tenth of the steps and falls to zero."""
    canvases = Canvases(held_out=False, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.1
    )
    model.train()
    for step in range(steps):
        images, labels = canvases.draw(batch_size)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 50 == 0:
            sys.stdout.write(f"step {step + 1}: loss {loss.item():.3f}\n")


@torch.inference_mode()
def evaluate(model: nn.Module, number: int) -> tuple[float, float]:
    """Mean intersection over union of the ten digits, and the share of their pixels found."""
    canvases = Canvases(held_out=True, seed=1)
    confusion = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    for _ in range(number // 10):
        images, labels = canvases.draw(10)
        pairs = labels * CLASSES + model.eval()(images).argmax(1)
        confusion += pairs.flatten().bincount(minlength=CLASSES**2).view(CLASSES, CLASSES)
    right = confusion.diagonal()[1:]
    union = confusion.sum(0)[1:] + confusion.sum(1)[1:] - right
    return (right / union).mean().item(), (right.sum() / confusion[1:].sum()).item()


@torch.inference_mode()
def draw(model: nn.Module, path: Path, number: int = 4) -> None:
    """Held-out canvases, their labels and the model's, as a picture."""
    images, labels = Canvases(held_out=True, seed=2).draw(number)
    found = model.eval()(images).argmax(1)
    digits = labels > 0
    right = float((found == labels)[digits].double().mean())
    title = f"{right:.0%} of the digits' pixels get their class, on canvases held out"
    note = (
        "Number: the class of most pixels in that place. A cross: a pixel of another digit's class."
    )
    with picture(path, title, across=number, down=3, height=5.6, note=note, colours=96) as panels:
        for column in range(number):
            top, middle, bottom = panels[column::number]
            top.imshow(images[column, 0].numpy(), cmap="gray_r", vmin=0, vmax=1)
            _draw_classes(middle, labels[column], labels[column])
            _draw_classes(bottom, found[column], labels[column])
            for axes, words in ((top, "image"), (middle, "truth"), (bottom, "prediction")):
                bare(axes, words if column == 0 else "")


def _draw_classes(axes: Any, classes: Tensor, truth: Tensor) -> None:
    """The pixels of digits, those of a wrong one crossed, and the class of each beside it."""
    from scipy.ndimage import find_objects, label

    wrong = torch.nonzero((classes != truth) & (classes > 0) & (truth > 0)).numpy()
    axes.imshow(0.25 * (classes > 0).numpy(), cmap="gray_r", vmin=0, vmax=1)
    axes.plot(wrong[:, 1], wrong[:, 0], "x", color=COLOURS[1], ms=3, mew=1)
    pieces, _ = label(truth.numpy() > 0, structure=np.ones((3, 3)))
    for number, box in enumerate(find_objects(pieces), start=1):
        here = classes.numpy()[pieces == number]
        most = int(np.bincount(here, minlength=CLASSES).argmax())
        said = str(most - 1) if most else "-"
        axes.text(box[1].stop, box[0].start, said, color=COLOURS[0], fontweight="bold", va="top")


def main(argv: Sequence[str] | None = None) -> None:
    """Train, evaluate, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="test_cvt_ls", help="a model with maps at stride 4")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--canvases", type=int, default=200, help="held-out ones to evaluate on")
    parser.add_argument("--picture", type=Path, default=Path("docs/segment_digits.png"))
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    model = Segmenter(args.model)
    train(model, args.steps)
    iou, found = evaluate(model, args.canvases)
    draw(model, args.picture)
    sys.stdout.write(f"held-out digits: mean IoU {iou:.3f}, pixels found {found:.3f}\n")


if __name__ == "__main__":
    main()
