import csv
from pathlib import Path
from statistics import fmean

import pytest

from robustness.data.benchmarks import C_BAR, IN_MCE, grid
from robustness.data.gaps import Gap, Kind
from robustness.rules.metrics import alexnet, corruption_error, metrics, wilson
from robustness.rules.results import CellResult, Report, Result

CELLS = 5000


def published_cells(model: str) -> dict[str, list[float]]:
    """Errors over the severities by corruption, of 5000 images in each cell."""
    errors: dict[str, list[float]] = {}
    with (Path(__file__).parent / "published_cells.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] == model:
                errors.setdefault(row["corruption"], []).append(1 - float(row["top1_acc_5k"]))
    return errors


def result_of(accuracy: float, benchmark: str = "imagenet-c", **gaps: list[str]) -> Result:
    cells = grid(C_BAR if benchmark == "imagenet-c-bar" else IN_MCE)
    counts = {"top1": round(accuracy * CELLS), "images": CELLS}
    found = {cell: CellResult(dict(counts)) for cell in cells}
    for cell, texts in gaps.items():
        found[cell.replace("_", "/")].gaps += [Gap(Kind.COUNT, text) for text in texts]
    numbers = "mean_error" if benchmark == "imagenet-c-bar" else "mce"
    label = "official files"
    return Result(benchmark, numbers, "folder", label, "unchanged", {}, CELLS, list(cells), found)


def value(report: Report, name: str) -> float | None:
    return next(m.value for m in metrics(report) if m.name == name)


@pytest.mark.parametrize(("model", "mce"), [("AlexNet", 100.0), ("Standard_R50", 76.377)])
def test_cells_over_alexnets_cells_on_the_same_images(model: str, mce: float) -> None:
    reference, ours = published_cells("AlexNet"), published_cells(model)
    assert sorted(ours) == sorted(IN_MCE)
    found = fmean(corruption_error(fmean(ours[c]), fmean(reference[c])) for c in IN_MCE)
    assert found == pytest.approx(mce, abs=0.001)


def test_published_cells_of_resnet50_give_its_published_mce() -> None:
    result = result_of(0)
    for corruption, errors in published_cells("Standard_R50").items():
        for cell, error in zip(grid([corruption]), errors, strict=True):
            counts = {"top1": round((1 - error) * CELLS), "images": CELLS}
            result.cells[cell] = CellResult(counts)
    assert value(Report({"name": "resnet50"}, [result]), "mCE") == pytest.approx(76.37, abs=0.005)


def test_alexnet_has_mce_100_and_relative_mce_100_on_its_own_errors() -> None:
    result = result_of(0)
    for cell in result.cells:
        error = alexnet().mean[cell.split("/")[0]]
        result.cells[cell] = CellResult({"top1": round((1 - error) * 10**7), "images": 10**7})
    counts = {
        "top1": 56522, "top5": 1, "images": 100_000, "real_named": 0, "a200_images": 0,
        "a200_top1": 0, "r200_images": 0, "r200_top1": 0,
    }  # fmt: skip
    cells = {"all": CellResult(counts)}
    clean = Result("imagenet-val", "val", "val", "", "", {}, 1, ["all"], cells)
    report = Report({"name": "alexnet"}, [clean, result])
    assert value(report, "mCE") == pytest.approx(100, abs=1e-4)
    assert value(report, "relative mCE") == pytest.approx(100, abs=1e-3)


def test_mce_relative_mce_and_mean_error_are_three_numbers() -> None:
    report = Report({"name": "m"}, [result_of(0.5)])
    expected = fmean(100 * 0.5 / alexnet().mean[c] for c in IN_MCE)
    assert value(report, "mCE") == pytest.approx(expected)
    assert value(report, "mean error") == pytest.approx(50)
    assert value(report, "relative mCE") is None


def test_one_broken_cell_withholds_mce_but_not_the_other_corruptions() -> None:
    report = Report({"name": "m"}, [result_of(0.5, fog_3=["49999 images of 50000"])])
    assert value(report, "mCE") is None
    assert value(report, "CE fog") is None
    assert value(report, "CE snow") == pytest.approx(50 / alexnet().mean["snow"])


def test_c_bar_is_a_plain_mean_error() -> None:
    report = Report({"name": "m"}, [result_of(0.3, "imagenet-c-bar")])
    assert value(report, "mean error") == pytest.approx(70)


def test_alexnet_errors_are_those_of_the_literature() -> None:
    reference = alexnet()
    assert reference.mean["gaussian_noise"] == pytest.approx(0.886428)
    assert reference.mean["jpeg_compression"] == pytest.approx(0.6065)
    assert reference.mean["saturate"] == pytest.approx(0.658248)
    assert len(reference.mean) == 19


def test_interval_is_wilsons() -> None:
    low, high = wilson(8, 10)
    assert (low, high) == pytest.approx((49.0162, 94.3318), abs=1e-3)
    assert wilson(0, 10)[0] == pytest.approx(0)
    assert wilson(10, 10)[1] == pytest.approx(100)
