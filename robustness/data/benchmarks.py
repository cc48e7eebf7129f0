"""The benchmarks: where each lies, how its folders name the classes, its rule and its transform."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from robustness.corruptions import CORRUPTIONS, SEVERITIES
from robustness.errors import UsageError

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


def grid(corruptions: Iterable[str]) -> tuple[str, ...]:
    """Cells named "corruption/severity"."""
    return tuple(f"{name}/{severity}" for name in corruptions for severity in SEVERITIES)


@dataclass(frozen=True)
class Benchmark:
    """One row of the table.

    Attributes:
        name: Name in commands and reports.
        folders: Where it may lie under the data root; the first that exists is taken.
        layout: How a cell's folder is found and its classes are named (`layouts`).
        rule: How an answer is judged (`rules.judging`).
        protocol: How an image is prepared (`rules.protocols`).
        images: Images in a complete cell.
        cells: The parts that a complete benchmark has.
        extra_cells: Parts that may be there and never enter the headline.
        image_size: Side of the published images where they must reach the model as they are.
        num_classes: Classes the model must have.
        generated: Made by our own corruptions, not the released files.
        by_default: Evaluated when no suite is named and the folder is there.
    """

    name: str
    folders: tuple[str, ...]
    layout: str
    rule: str
    protocol: str
    images: int
    cells: tuple[str, ...] = SINGLE
    extra_cells: tuple[str, ...] = ()
    image_size: int | None = None
    num_classes: int = 1000
    generated: bool = False
    by_default: bool = True


def _v2(variant: str) -> Benchmark:
    folder = f"imagenetv2-{variant}-format-val"
    places = (folder, f"imagenetv2/{folder}", f"imagenet-v2/{folder}")
    return Benchmark(f"imagenet-v2-{variant}", places, "v2", "plain", "model", 10_000)


def _c(name: str, folders: tuple[str, ...], protocol: str, **more: bool) -> Benchmark:
    return Benchmark(
        name,
        folders,
        "corruptions",
        "plain",
        protocol,
        50_000,
        grid(IN_MCE),
        grid(EXTRA),
        image_size=224,
        **more,
    )


_VAL = ("imagenet/val", "imagenet-val", "imagenet/validation", "ILSVRC2012/val", "val")
_C = ("imagenet-c", "ImageNet-C")

BENCHMARKS = {
    row.name: row
    for row in (
        Benchmark("imagenet-val", _VAL, "wnid", "val", "model", 50_000),
        _v2("matched-frequency"),
        _v2("threshold0.7"),
        _v2("top-images"),
        Benchmark("imagenet-a", ("imagenet-a", "ImageNet-A"), "a", "a", "model", 7_500),
        Benchmark("imagenet-r", ("imagenet-r", "ImageNet-R"), "r", "r", "model", 30_000),
        Benchmark(
            "imagenet-sketch",
            ("imagenet-sketch", "ImageNet-Sketch", "sketch"),
            "wnid",
            "plain",
            "model",
            50_889,
        ),
        _c("imagenet-c", _C, "unchanged"),
        _c("imagenet-c-paper", _C, "paper", by_default=False),
        _c("imagenet-c-generated", ("imagenet-c-generated",), "unchanged", generated=True),
        Benchmark(
            "imagenet-c-bar",
            ("imagenet-c-bar", "ImageNet-C-bar", "imagenet_c_bar"),
            "corruptions",
            "plain",
            "unchanged",
            50_000,
            grid(C_BAR),
            image_size=224,
        ),
        Benchmark(
            "imagenet-9",
            ("imagenet-9", "ImageNet-9", "bg_challenge", "backgrounds_challenge"),
            "in9",
            "in9",
            "unchanged",
            4_050,
            IN9_VARIANTS,
            image_size=224,
        ),
        Benchmark(
            "digits",
            (),
            "digits",
            "plain",
            "unchanged",
            364,
            SINGLE + grid(IN_MCE),
            grid(EXTRA),
            num_classes=10,
            generated=True,
            by_default=False,
        ),
    )
}

_SUITES = {
    "imagenet-real": ("imagenet-val",),
    "imagenet-v2": tuple(name for name in BENCHMARKS if name.startswith("imagenet-v2-")),
}


def choose(suites: Iterable[str] | None) -> list[Benchmark]:
    """The rows that the named suites stand for, in the order of the table.

    Raises:
        UsageError: A name is unknown.
    """
    if suites is None:
        return [row for row in BENCHMARKS.values() if row.by_default]
    chosen: set[str] = set()
    for suite in suites:
        known = [*BENCHMARKS, *_SUITES]
        if suite not in known:
            near = difflib.get_close_matches(suite, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}."
            raise UsageError(f"--suites has no suite named {suite}{hint}")
        chosen.update(_SUITES.get(suite, (suite,)))
    return [row for name, row in BENCHMARKS.items() if name in chosen]
