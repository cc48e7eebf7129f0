"""The table of benchmarks: where each lies, its layout, classes, rule, numbers and transform."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from robustness.corruptions import CORRUPTIONS, SEVERITIES
from vit_ls.config import ConfigError, nearest

IN_MCE = tuple(name for name, row in CORRUPTIONS.items() if row.group != "extra")
EXTRA = tuple(name for name, row in CORRUPTIONS.items() if row.group == "extra")
C_BAR = (
    "blue_noise_sample",
    "brownish_noise",
    "caustic_refraction",
    "checkerboard_cutout",
    "cocentric_sine_waves",
    "inverse_sparkles",
    "perlin_noise",
    "plasma_noise",
    "single_frequency_greyscale",
    "sparkles",
)
IN9_VARIANTS = (
    "original",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "only_fg",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
)
SINGLE = ("all",)
"""The cell of a benchmark that has but one."""


THREE_D = (
    "near_focus",
    "far_focus",
    "fog_3d",
    "flash",
    "color_quant",
    "low_light",
    "xy_motion_blur",
    "z_motion_blur",
    "iso_noise",
    "bit_error",
    "h265_abr",
    "h265_crf",
)


PERTURBATIONS = (
    "gaussian_noise",
    "shot_noise",
    "motion_blur",
    "zoom_blur",
    "snow",
    "brightness",
    "translate",
    "rotate",
    "tilt",
    "scale",
)
EXTRA_PERTURBATIONS = ("speckle_noise", "gaussian_blur", "spatter", "shear")


def grid(corruptions: Iterable[str], severities: Iterable[int] = SEVERITIES) -> tuple[str, ...]:
    """Cells named "corruption/severity"."""
    steps = tuple(severities)
    return tuple(f"{name}/{severity}" for name in corruptions for severity in steps)


@dataclass(frozen=True)
class Benchmark:
    """One row of the table.

    Attributes:
        name: Name in commands and reports.
        folders: Where it may lie under the data root; the first that exists is taken.
        layout: Where a cell lies: "classes", "cells", "in9", "objectnet", "corruptions" or "videos"
            (`layouts`), "arrays" or "digits" (`sources`), "tree" or "list" (`unknown`).
        classes: How class folders are named (`layouts`), or their names in the classes' order; of a
            layout "list" the list's name.
        rule: How an answer is judged (`rules.judging`).
        numbers: What is made of the counts (`rules.metrics`).
        protocol: How an image is prepared (`rules.protocols`).
        images: Images in a complete cell; of a layout "list" the list says it.
        cells: The parts that a complete benchmark has.
        extra_cells: Parts that may be there and never enter the headline.
        image_size: Side of the published images where they must reach the model as they are.
        num_classes: Classes that the model may have.
        border: Pixels to cut off at each side before anything else. ObjectNet's red frame is one
            pixel wide; its authors' loaders cut two (`objectnet_pytorch_dataloader.py` of
            abarbu/objectnet-template-pytorch, `objectnet_iterator.py` of its TensorFlow sibling).
        generated: Made by our own corruptions, not the released files.
        own: A user's, described in a YAML file.
        by_default: Evaluated when no suite is named and the folder is there.
        frames: Frames of each cell's videos, in the order of cells and extra cells; () for images.
        unordered: Cells whose frames have no order (draws of noise), so that each is compared with
            the first one; elsewhere with the one before.
    """

    name: str
    folders: tuple[str, ...]
    layout: str
    classes: str | tuple[str, ...]
    rule: str
    numbers: str
    protocol: str
    images: int
    cells: tuple[str, ...] = SINGLE
    extra_cells: tuple[str, ...] = ()
    image_size: int | None = None
    num_classes: tuple[int, ...] = (1000,)
    border: int = 0
    generated: bool = False
    own: bool = False
    by_default: bool = True
    frames: tuple[int, ...] = ()
    unordered: tuple[str, ...] = ()

    def frames_of(self, cell: str) -> int:
        """Frames of each video of a cell; 0 where it holds images."""
        every = (*self.cells, *self.extra_cells)
        return self.frames[every.index(cell)] if self.frames else 0

    def rule_of(self, cell: str) -> str:
        """How the answers to a cell are judged."""
        return f"{self.rule}_from_first" if cell in self.unordered else self.rule

    @property
    def labelled(self) -> bool:
        """Whether its images have classes; those that no model knows have none."""
        return self.rule != "unknown"

    @property
    def takes_attacks(self) -> bool:
        """Whether its cell "all" holds clean images, each of one class that the model knows."""
        return SINGLE[0] in self.cells and self.rule in ("plain", "val") and not self.border


def _folders(
    name: str, folders: tuple[str, ...], classes: str, images: int, **more: Any
) -> Benchmark:
    """A tree of class folders, resized and cropped as the model is used to."""
    settings: dict[str, Any] = {"rule": "plain", "numbers": "accuracy", "protocol": "model"} | more
    return Benchmark(name, folders, "classes", classes, images=images, **settings)


def _v2(variant: str) -> Benchmark:
    folder = f"imagenetv2-{variant}-format-val"
    places = (folder, f"imagenetv2/{folder}", f"imagenet-v2/{folder}")
    return _folders(f"imagenet-v2-{variant}", places, "v2", 10_000)


def _corrupted(
    name: str, folders: tuple[str, ...], corruptions: Iterable[str], **more: Any
) -> Benchmark:
    """A tree of corruptions and severities, fed at 224 as it is."""
    settings: dict[str, Any] = {"numbers": "mean_error", "protocol": "unchanged"} | more
    cells = grid(corruptions)
    return Benchmark(
        name,
        folders,
        "corruptions",
        "wnid",
        "plain",
        images=50_000,
        cells=cells,
        image_size=224,
        **settings,
    )


def _c(name: str, folders: tuple[str, ...], **more: Any) -> Benchmark:
    return _corrupted(name, folders, IN_MCE, numbers="mce", extra_cells=grid(EXTRA), **more)


def _listed(name: str, listed: str, *, labelled: bool = False) -> Benchmark:
    """A list of OpenOOD v1.5's ImageNet-1K."""
    rule, numbers = ("plain", "accuracy") if labelled else ("unknown", "unknown")
    return Benchmark(name, _OPENOOD, "list", listed, rule, numbers, "model", 0)


_OPENOOD = ("openood", "OpenOOD/data", "openood/data")
_VAL = ("imagenet/val", "imagenet-val", "imagenet/validation", "ILSVRC2012/val", "val")
_C = ("imagenet-c", "ImageNet-C")
_BAR = ("imagenet-c-bar", "ImageNet-C-bar", "imagenet_c_bar")
_3DCC = ("imagenet-3dcc", "ImageNet-3DCC", "3dcc")
_SKETCH = ("imagenet-sketch", "ImageNet-Sketch", "sketch")
_STYLIZED = ("stylized-imagenet/val", "imagenet-stylized/val", "stylized-imagenet")
_P = ("imagenet-p", "ImageNet-P")
_IN9 = ("imagenet-9", "ImageNet-9", "bg_challenge", "backgrounds_challenge")

_ROWS = (
    _folders("imagenet-val", _VAL, "wnid", 50_000, rule="val", numbers="val"),
    _v2("matched-frequency"),
    _v2("threshold0.7"),
    _v2("top-images"),
    _folders("imagenet-a", ("imagenet-a", "ImageNet-A"), "a", 7_500, rule="a", numbers="masked"),
    _folders("imagenet-r", ("imagenet-r", "ImageNet-R"), "r", 30_000, rule="r", numbers="masked"),
    _folders("imagenet-sketch", _SKETCH, "wnid", 50_889),
    _folders("imagenet-stylized", _STYLIZED, "wnid", 50_000),
    Benchmark(
        "imagenet-objectnet",
        ("objectnet-1.0", "objectnet"),
        "objectnet",
        "objectnet",
        "objectnet",
        "accuracy",
        "model",
        18_574,
        border=2,
    ),
    _c("imagenet-c", _C),
    _c("imagenet-c-paper", _C, protocol="paper", by_default=False),
    _c("imagenet-c-generated", ("imagenet-c-generated",), generated=True),
    _corrupted("imagenet-c-bar", _BAR, C_BAR),
    _corrupted("imagenet-3dcc", _3DCC, THREE_D),
    Benchmark(
        "imagenet-p",
        _P,
        "videos",
        "wnid",
        "flips",
        "flips",
        "unchanged",
        50_000,
        PERTURBATIONS,
        EXTRA_PERTURBATIONS,
        image_size=224,
        frames=tuple(
            41 if name == "translate" else 31 for name in PERTURBATIONS + EXTRA_PERTURBATIONS
        ),
        unordered=("gaussian_noise", "shot_noise", "speckle_noise"),
    ),
    Benchmark(
        "imagenet-9",
        _IN9,
        "in9",
        "in9",
        "in9",
        "in9",
        "unchanged",
        4_050,
        IN9_VARIANTS,
        image_size=224,
        num_classes=(1000, 9),
    ),
    Benchmark(
        "imagenet-o",
        ("imagenet-o", "ImageNet-O"),
        "tree",
        "",
        "unknown",
        "unknown",
        "model",
        2_000,
    ),
    _listed("openood-imagenet", "test_imagenet", labelled=True),
    _listed("openood-ssb-hard", "test_ssb_hard"),
    _listed("openood-ninco", "test_ninco"),
    _listed("openood-inaturalist", "test_inaturalist"),
    _listed("openood-textures", "test_textures"),
    _listed("openood-openimage-o", "test_openimage_o"),
    Benchmark(
        "digits",
        (),
        "digits",
        tuple("0123456789"),
        "plain",
        "clean_and_mean_error",
        "unchanged",
        364,
        SINGLE + grid(IN_MCE),
        grid(EXTRA),
        image_size=32,
        num_classes=(10,),
        generated=True,
        by_default=False,
    ),
)

BENCHMARKS = {row.name: row for row in _ROWS}

_SUITES = {
    "imagenet-real": ("imagenet-val",),
    "openood": tuple(name for name in BENCHMARKS if name.startswith("openood-")),
    "imagenet-v2": tuple(name for name in BENCHMARKS if name.startswith("imagenet-v2-")),
}


def choose(suites: Iterable[str] | None, own: Iterable[Benchmark] = ()) -> list[Benchmark]:
    """The rows that the named suites stand for, in the order of the table.

    Args:
        suites: Names; None for all that are run by default, or for one's own where there are any.
        own: Benchmarks of one's own, which come after the table's.

    Raises:
        ConfigError: A name is unknown.
    """
    mine = {row.name: row for row in own}
    if suites is None:
        return list(mine.values()) or [row for row in BENCHMARKS.values() if row.by_default]
    rows = BENCHMARKS | mine
    chosen: set[str] = set()
    for suite in suites:
        known = [*rows, *_SUITES]
        if suite not in known:
            raise ConfigError(f"--suites has no suite named {suite}{nearest(suite, known)}")
        chosen.update(_SUITES.get(suite, (suite,)))
    return [row for name, row in rows.items() if name in chosen]
