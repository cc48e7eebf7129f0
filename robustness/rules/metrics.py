"""Numbers from integer counts: accuracy with its interval, CE, mCE, relative mCE, gaps."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from scipy.stats import binomtest

from robustness.data.benchmarks import IN9_VARIANTS, IN_MCE, PERTURBATIONS, SINGLE, grid
from robustness.data.gaps import Gap, Kind, gather
from robustness.rules.judging import Counts
from robustness.rules.results import Report, Result


@dataclass(frozen=True)
class Metric:
    """One number in percent, or the reason why it is withheld.

    Attributes:
        benchmark: Name of the row.
        name: What it is.
        value: In percent, None where it is withheld.
        low: Lower end of the 95 % interval, for accuracies.
        high: Upper end.
        right: Count above the line.
        images: Count below the line.
        note: What must stand beside it, or why it is withheld.
        optional: Withheld, it leaves the answer complete: its benchmark was not asked for.
        lower_is_better: Whether a smaller number is the better one: errors and gaps.
        headline: Stands for its benchmark, beside those that always do.
        cell: Whose images are right under its own rule, where that is all that it counts.
    """

    benchmark: str
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    right: int | None = None
    images: int | None = None
    note: str = ""
    optional: bool = False
    lower_is_better: bool = False
    headline: bool = False
    cell: str = ""


@dataclass(frozen=True)
class AlexNet:
    """Errors of AlexNet on ImageNet-C, which CE divides by."""

    clean: float
    mean: dict[str, float]


@cache
def alexnet() -> AlexNet:
    """The published errors, mean over the five severities."""
    table = json.loads((Path(__file__).parent / "tables" / "alexnet_errors.json").read_text())
    means = {name: fmean(errors) for name, errors in table["per_severity"].items()}
    return AlexNet(table["clean"], means | table["mean_extras"])


def wilson(right: int, images: int) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson's score interval), in percent."""
    interval = binomtest(right, images).proportion_ci(method="wilson")
    return 100 * float(interval.low), 100 * float(interval.high)


def corruption_error(mean_error: float, reference_error: float) -> float:
    """CE: ratio of the mean errors over severities, in percent."""
    return 100 * mean_error / reference_error


def relative_corruption_error(
    mean_error: float, clean_error: float, reference_error: float, reference_clean: float
) -> float:
    """Relative CE: ratio of what the corruption adds to the clean error, in percent."""
    return 100 * (mean_error - clean_error) / (reference_error - reference_clean)


def metrics(report: Report) -> list[Metric]:
    """All numbers of a report, withheld ones included, in the order of the benchmarks."""
    found: list[Metric] = []
    for result in report.results:
        found += _NUMBERS[result.numbers](result, report)
        found += [_robust(result, cell) for cell in result.attacks]
    return found


@cache
def alexnet_flips() -> dict[str, float]:
    """AlexNet's flip probabilities on ImageNet-P, which the flip rate divides by."""
    table = json.loads((Path(__file__).parent / "tables" / "alexnet_flips.json").read_text())
    probabilities: dict[str, float] = table["flip_probability"]
    return probabilities


def severity_errors(result: Result, corruption: str) -> list[float | None]:
    """Error in percent at each severity, None where the cell is not whole."""
    cells = [result.whole(cell) for cell in cells_of(result, corruption)]
    return [None if c is None else 100 * (1 - c["top1"] / c["images"]) for c in cells]


def mean_errors(result: Result) -> dict[str, float]:
    """Mean error over the severities in percent, of each corruption that is whole."""
    errors = {name: severity_errors(result, name) for name in corruptions_of(result)}
    return {
        name: fmean(e for e in own if e is not None)
        for name, own in errors.items()
        if None not in own
    }


def cells_of(result: Result, corruption: str) -> list[str]:
    """The cells of a corruption that the result must have, by severity."""
    names = dict.fromkeys([*result.required, *result.cells])
    return [name for name in names if name.startswith(f"{corruption}/")]


def corruptions_of(result: Result) -> list[str]:
    """The corruptions that a result has cells of, in the order of the cells."""
    return list(dict.fromkeys(name.split("/")[0] for name in result.cells if "/" in name))


def _accuracy(
    result: Result, cell: str, name: str, right: str = "top1", images: str = "images"
) -> Metric:
    counts = result.whole(cell)
    if counts is None:
        return Metric(result.benchmark, name, None, note="withheld: " + _why(result, [cell]))
    number = _share(result, name, counts, right, images)
    return replace(number, cell=cell if right == "top1" else "")


def _share(result: Result, name: str, counts: Counts, right: str, images: str) -> Metric:
    hits, of = counts[right], counts[images]
    if of == 0:
        why = "withheld: none of the images counts for it"
        return Metric(result.benchmark, name, None, note=why, optional=True)
    low, high = wilson(hits, of)
    return Metric(result.benchmark, name, 100 * hits / of, low, high, hits, of, result.label)


def _single(result: Result, _: Report) -> list[Metric]:
    """Top-1 and top-5 of each cell."""
    return [
        _accuracy(result, cell, name + ("" if cell == "all" else f" {cell}"), right)
        for cell in result.required
        for name, right in (("top-1", "top1"), ("top-5", "top5"))
    ]


def _robust(result: Result, cell: str) -> Metric:
    number = _accuracy(result, cell, f"robust top-1, {result.attacks[cell]}")
    if number.value is None:
        return replace(number, headline=True)
    note = f"{number.note}; {result.libraries[cell]}"
    return replace(number, headline=True, note=note)


def _flips(result: Result, _: Report) -> list[Metric]:
    """The mean flip rate, and for each perturbation what the released script prints."""
    reference = alexnet_flips()

    def per_step(cell: str, count: str) -> float:
        counts = result.cells[cell].counts
        return counts[count] / counts["comparisons"]

    def probability(cell: str) -> float:
        return 100 * per_step(cell, "flips")

    def rate(cell: str) -> float:
        return probability(cell) / reference[cell]

    def distance(cell: str) -> float:
        return per_step(cell, "top5_distance")

    numbers = [_lower(result, PERTURBATIONS, "mFR", rate)]
    for cell in result.cells:
        if cell in reference:
            numbers.append(_lower(result, [cell], f"flip rate {cell}", rate))
        numbers.append(_lower(result, [cell], f"flip probability {cell}", probability))
        unit = "places per comparison, not %; "
        numbers.append(_lower(result, [cell], f"top-5 distance {cell}", distance, unit))
    return numbers


def _lower(
    result: Result,
    names: Sequence[str],
    name: str,
    of: Callable[[str], float],
    unit: str = "",
    cells: Sequence[str] | None = None,
) -> Metric:
    """The mean of a number over names, of which lower is better.

    Args:
        result: Of the benchmark.
        names: Of cells, or of corruptions.
        name: Of the number.
        of: The number of each name.
        unit: What must stand beside it.
        cells: That must be whole; those of `names` where these are cells.
    """
    needed = names if cells is None else cells
    if not needed or any(result.whole(cell) is None for cell in needed):
        why = "withheld: " + _why(result, needed)
        return Metric(result.benchmark, name, None, note=why, lower_is_better=True)
    value = fmean(of(each) for each in names)
    return Metric(result.benchmark, name, value, note=unit + result.label, lower_is_better=True)


def _unknown(result: Result, _: Report) -> list[Metric]:
    """What counts tell of images of no class; how well they are noticed, the kept scores tell."""
    number = _accuracy(result, SINGLE[0], "answered with over 50 % confidence", "sure")
    return [replace(number, lower_is_better=True)]


def _val(result: Result, report: Report) -> list[Metric]:
    numbers = _single(result, report)
    counts = result.whole("all")
    if counts is not None and counts["real_named"] < counts["images"]:
        why = "withheld: files are not all named ILSVRC2012_val_00000001 and so on"
        numbers.append(Metric(result.benchmark, "ReaL top-1", None, note=why))
    else:
        numbers.append(_accuracy(result, "all", "ReaL top-1", "real_top1", "real_images"))
    for letter in "ar":
        name = f"top-1 on the 200 classes of ImageNet-{letter.upper()}"
        prefix = f"{letter}200_"
        numbers.append(_accuracy(result, "all", name, prefix + "top1", prefix + "images"))
    return numbers


def _masked(result: Result, _: Report) -> list[Metric]:
    return [
        _accuracy(result, "all", "top-1"),
        _accuracy(result, "all", "top-5", "top5"),
        _accuracy(result, "all", "top-1 without the mask", "top1_unmasked"),
    ]


def _in9(result: Result, _: Report) -> list[Metric]:
    numbers = [_accuracy(result, variant, f"top-1 {variant}") for variant in IN9_VARIANTS]
    value = {m.name: m.value for m in numbers}
    same, rand = value["top-1 mixed_same"], value["top-1 mixed_rand"]
    if same is None or rand is None:
        why = "withheld: " + _why(result, ["mixed_same", "mixed_rand"])
        gap = Metric(result.benchmark, "BG-gap", None, note=why, lower_is_better=True)
        return [*numbers, gap]
    gap = Metric(result.benchmark, "BG-gap", same - rand, note=result.label, lower_is_better=True)
    return [*numbers, gap]


def _c(result: Result, report: Report) -> list[Metric]:
    errors = mean_errors(result)
    reference = alexnet()

    def error_of(corruption: str) -> float:
        return corruption_error(errors[corruption] / 100, reference.mean[corruption])

    numbers = [
        _over(result, IN_MCE, "mCE", error_of),
        _relative(result, report, errors),
        _over(result, IN_MCE, "mean error", errors.__getitem__),
    ]
    for name in corruptions_of(result):
        kind = "CE" if name in IN_MCE else "CE, extra,"
        numbers.append(_over(result, [name], f"{kind} {name}", error_of))
    return numbers


def _relative(result: Result, report: Report, errors: dict[str, float]) -> Metric:
    clean = report.result("imagenet-val")
    counts = clean.whole("all") if clean else None
    if counts is None:
        why = "withheld: needs the clean error of a whole imagenet-val"
        return Metric(
            result.benchmark, "relative mCE", None, note=why, optional=True, lower_is_better=True
        )
    reference, clean_error = alexnet(), 1 - counts["top1"] / counts["images"]
    return _over(
        result,
        IN_MCE,
        "relative mCE",
        lambda c: relative_corruption_error(
            errors[c] / 100, clean_error, reference.mean[c], reference.clean
        ),
    )


def _mean_error(result: Result, _: Report) -> list[Metric]:
    """The plain mean over the required corruptions; extra ones stand by themselves."""
    errors = mean_errors(result)
    required = list(dict.fromkeys(c.split("/")[0] for c in result.required if "/" in c))
    every = dict.fromkeys([*required, *corruptions_of(result)])
    return [_over(result, required, "mean error", errors.__getitem__)] + [
        _over(result, [name], f"error {name}", errors.__getitem__) for name in every
    ]


def _clean_and_mean_error(result: Result, report: Report) -> list[Metric]:
    return [_accuracy(result, "all", "top-1 clean"), *_mean_error(result, report)]


def _over(
    result: Result, corruptions: Sequence[str], name: str, of: Callable[[str], float]
) -> Metric:
    cells = [cell for c in corruptions for cell in cells_of(result, c) or grid([c])]
    return _lower(result, corruptions, name, of, cells=cells)


def _why(result: Result, cells: Sequence[str]) -> str:
    """All that the cells lack, the same lack of many in one line."""
    none = [Gap(Kind.NO_FOLDER, "no folder")]
    broken = {
        cell: [gap.text for gap in (result.cells[cell].gaps if cell in result.cells else none)]
        for cell in cells
        if result.whole(cell) is None
    }
    if len(cells) == 1:
        broken = {"all": broken[cells[0]]}
    return "; ".join([gap.text for gap in result.gaps] + gather(broken))


_NUMBERS: dict[str, Callable[[Result, Report], list[Metric]]] = {
    "accuracy": _single,
    "val": _val,
    "masked": _masked,
    "in9": _in9,
    "mce": _c,
    "flips": _flips,
    "unknown": _unknown,
    "mean_error": _mean_error,
    "clean_and_mean_error": _clean_and_mean_error,
}
