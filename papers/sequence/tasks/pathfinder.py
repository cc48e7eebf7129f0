"""Pathfinder in 32 x 32: are the two marked ends those of one path of dashes, or of two?

Drawn by the description of the released generator (Linsley et al., 2018; Long Range Arena), not by
its code, so images are of the same kind and not the same. Two target paths of `contour` dashes
each, the second begun 7 pixels from the first, among shorter distractors. Two discs mark both ends
of one path (1), or the start of one and the end of the other (0).

A dash is 2 pixels long and 0.5 thick with 1 pixel free around it. The next one starts 1 pixel
beyond the last, at an angle drawn with probability ~ free cos^2(min(|turn|, pi / 2)) over the
pixels of a ring. What touches an occupied place is drawn again, up to three times; then a target
fails the image, which starts over, and a distractor is left out.
"""

import itertools
import math
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from papers.sequence.data import Split, Task
from vit_ls.config import ConfigError
from vit_ls.data.pictures import PictureError, read_picture

SIDE = 32
CONTOURS = {"easy": 6, "intermediate": 9, "hard": 14}
FOLDERS = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}

_LENGTH, _THICKNESS, _MARGIN, _BORDER = 2.0, 0.5, 1.0, 1
_DISC = 1.5
_APART = 7.0
_TRIES = 3
# Of targets, distractors and discs, before the image is stretched to 0 to 255.
_TARGET, _DISTRACTOR, _MARK = 1.5, 2.0, 1.0
_SCALE = 2  # drawn so much larger, and resized
_FINE = 4  # of the grid that knows what is occupied

_Point = tuple[float, float]


class Dash(NamedTuple):
    """A line piece: (x, y) of its ends, in pixels."""

    start: _Point
    end: _Point

    @property
    def angle(self) -> float:
        """Its direction."""
        return math.atan2(self.end[1] - self.start[1], self.end[0] - self.start[0])


class Picture(NamedTuple):
    """What an image shows."""

    label: int
    targets: list[list[Dash]]
    distractors: list[list[Dash]]
    marks: tuple[_Point, _Point]


class _Board:
    """Where there is something already."""

    def __init__(self) -> None:
        self.occupied = np.ones((SIDE * _FINE, SIDE * _FINE), dtype=bool)
        edge = _BORDER * _FINE
        self.occupied[edge:-edge, edge:-edge] = False

    def free(self, dash: Dash) -> bool:
        """Whether nothing stands where the dash would."""
        inside = all(0 <= v < SIDE for point in dash for v in point)
        return inside and not (self.occupied & _covered(dash, _THICKNESS)).any()

    def free_at(self, point: _Point) -> bool:
        """Whether nothing stands at a point."""
        x, y = (int(v * _FINE) for v in point)
        n = SIDE * _FINE
        return 0 <= x < n and 0 <= y < n and not self.occupied[y, x]

    def add(self, dash: Dash) -> None:
        """Occupy a dash and the margin around it."""
        self.occupied |= _covered(dash, _THICKNESS + 2 * _MARGIN)


def generated(samples: int, *, difficulty: str, seed: int) -> Task:
    """Images in grey as 1024 ids of 256: `samples` to train on, and an eighth of that twice.

    Args:
        samples: Training images.
        difficulty: A key of `CONTOURS`.
        seed: Of the images.
    """
    rng = random.Random(seed)
    held_out = max(1, samples // 8)
    splits = []
    for count in (samples, held_out, held_out):
        pictures = [draw(CONTOURS[difficulty], rng) for _ in range(count)]
        ids = torch.stack([painted(picture) for picture in pictures]).flatten(1)
        splits.append(Split(ids, torch.tensor([picture.label for picture in pictures])))
    train, valid, test = splits
    source = f"{samples} generated images, {difficulty}: {CONTOURS[difficulty]} dashes"
    return Task(train, valid, test, vocab_size=256, num_classes=2, pad_id=None, source=source)


def read(folder: Path, *, difficulty: str) -> Task:
    """The released images of a difficulty: the first 80 % train, the next 10 % choose.

    In the order of the files of metadata, whose images are drawn alike; the Long Range Arena's own
    order depends on the library that wrote its records. Images of an empty file are left out, as
    there.

    Raises:
        ConfigError: They are not there, or not of this task.
    """
    root = folder / FOLDERS[difficulty]
    lists = sorted((root / "metadata").glob("*.npy"), key=lambda path: (len(path.name), path.name))
    if not lists:
        raise ConfigError(
            f"--data-dir must hold {FOLDERS[difficulty]}, of --difficulty {difficulty}, with its "
            f"metadata (lra_release.gz, pathfinder32), got no {root / 'metadata'}."
        )
    images, labels = [], []
    for path in lists:
        # lines of text, whatever the name says
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split(" ")
            if len(words) < 4 or words[3] not in ("0", "1"):
                raise ConfigError(
                    f"{path} must have lines of a folder, a name, a number and a label 0 or 1, "
                    f"got {line[:60]!r}."
                )
            image = root / words[0] / words[1]
            if not image.is_file():
                raise ConfigError(f"{path} must name images that are there, got no {image}.")
            if image.stat().st_size:
                images.append(_pixels(image))
                labels.append(int(words[3]))
    cuts = (0, len(images) * 8 // 10, len(images) * 9 // 10, len(images))
    if len(images) < 10:
        raise ConfigError(f"{root} must hold at least 10 images, got {len(images)}.")
    ids, said = torch.stack(images), torch.tensor(labels)
    train, valid, test = (Split(ids[a:b], said[a:b]) for a, b in itertools.pairwise(cuts))
    return Task(train, valid, test, vocab_size=256, num_classes=2, pad_id=None, source=str(root))


def _pixels(path: Path) -> Tensor:
    """Uint8 [1024]."""
    try:
        grey = np.array(read_picture(path, "L"))
    except PictureError as error:
        raise ConfigError(f"{path} must be an image: {error}") from error
    if grey.shape != (SIDE, SIDE):
        raise ConfigError(f"{path} must be {SIDE} x {SIDE} pixels, got {grey.shape}.")
    return torch.from_numpy(grey).flatten()


def draw(contour: int, rng: random.Random) -> Picture:
    """One picture of target paths of `contour` dashes."""
    while True:
        board = _Board()
        first = _path(board, contour, rng, _anywhere(rng))
        if first is None:
            continue
        angle = rng.uniform(0, 2 * math.pi)
        x, y = first[0].start
        near = (x + _APART * math.cos(angle), y + _APART * math.sin(angle))
        second = _path(board, contour, rng, near)
        if second is not None:
            break
    dashes = contour // 3
    drawn = [_path(board, dashes, rng, _anywhere(rng)) for _ in range(20 // dashes)]
    label = rng.randrange(2)
    one, other = (first, second) if rng.random() < 0.5 else (second, first)
    marks = (one[0].start, (one if label else other)[-1].end)
    return Picture(label, [first, second], [path for path in drawn if path], marks)


def painted(picture: Picture) -> Tensor:
    """Uint8 [32,32]; where things overlap the brightest is seen."""
    image = Image.new("F", (SIDE * _SCALE, SIDE * _SCALE))
    canvas = ImageDraw.Draw(image)
    for point in picture.marks:
        box = [(v + d) * _SCALE for d in (-_DISC, _DISC) for v in point]
        canvas.ellipse(box, fill=_MARK)
    width = max(1, round(_THICKNESS * _SCALE))
    for paths, value in ((picture.targets, _TARGET), (picture.distractors, _DISTRACTOR)):
        for dash in (dash for path in paths for dash in path):
            ends = [v * _SCALE for point in dash for v in point]
            canvas.line(ends, fill=value, width=width)
    small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)).clip(min=0)
    return torch.from_numpy((small * (255 / small.max())).round().astype(np.uint8))


def _anywhere(rng: random.Random) -> _Point:
    return rng.uniform(_BORDER, SIDE - _BORDER), rng.uniform(_BORDER, SIDE - _BORDER)


def _path(board: _Board, dashes: int, rng: random.Random, start: _Point) -> list[Dash] | None:
    """A path of so many dashes, then on the board; None where there is no room, and no change."""
    before = board.occupied.copy()
    path: list[Dash] = []
    for _ in range(dashes):
        for _ in range(_TRIES):
            dash = _first(start, rng) if not path else _next(board, path[-1], rng)
            if dash is not None and board.free(dash):
                break
        else:
            board.occupied = before
            return None
        if path:  # the last one's margin would forbid what follows it directly
            board.add(path[-1])
        path.append(dash)
    board.add(path[-1])
    return path


def _first(start: _Point, rng: random.Random) -> Dash:
    angle = rng.uniform(0, 2 * math.pi)
    return Dash(start, _from(start, angle, _LENGTH))


def _next(board: _Board, last: Dash, rng: random.Random) -> Dash | None:
    """The dash that follows: a pixel of the ring around the last one's end says where it ends."""
    radius = _LENGTH + _MARGIN
    reach = math.ceil(radius)
    angles, weights = [], []
    for dx in range(-reach, reach + 1):
        for dy in range(-reach, reach + 1):
            if abs(math.hypot(dx, dy) - radius) > 0.5:
                continue
            angle = math.atan2(dy, dx)
            turn = abs(math.remainder(angle - last.angle, 2 * math.pi))
            end = _from(last.end, angle, radius)
            angles.append(angle)
            weights.append(board.free_at(end) * math.cos(min(turn, math.pi / 2)) ** 2)
    if sum(weights) < 1e-9:
        return None
    (angle,) = rng.choices(angles, weights)
    return Dash(_from(last.end, angle, _MARGIN), _from(last.end, angle, radius))


def _from(point: _Point, angle: float, distance: float) -> _Point:
    return point[0] + distance * math.cos(angle), point[1] + distance * math.sin(angle)


def _covered(dash: Dash, thickness: float) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
    """Places of the fine grid within half a thickness of a dash."""
    places = (np.arange(SIDE * _FINE) + 0.5) / _FINE
    x, y = np.meshgrid(places, places)
    (x0, y0), (x1, y1) = dash
    along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / _LENGTH**2
    along = along.clip(0, 1)
    distance = np.hypot(x - x0 - along * (x1 - x0), y - y0 - along * (y1 - y0))
    return np.asarray(distance <= thickness / 2)
