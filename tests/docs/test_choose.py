"""The numbers of "Choose a model" are those of the committed measurements."""

import csv

import pytest
from documents import PAGES, ROOT

RESULTS = ROOT / "benchmarks" / "results"
SETTINGS = ("float32", "bf16", "openvino_bf16")
MEASURED_AS = {
    "cst_vit_small_patch16_224": "cst_vit_small_patch16",
    "swin_tiny": "swin_tiny_patch4_window7_224",
    "hiera_tiny": "hiera_tiny_224",
    "vit_small": "vit_small_patch16_224",
}
"""Names of the measurements that are not those of the page."""


def rows_of(heading):
    """Cells of the table under a heading, as text, by the model's name."""
    section = PAGES["docs/choose.md"].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    found = {}
    for line in lines:
        name, *cells = (cell.strip().strip("*") for cell in line.strip("|").split("|"))
        found[name.split("`")[1]] = cells
    return found


def measured(name):
    lines = (RESULTS / name).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("name", sorted(rows_of("Small images: measured")))
def test_images_per_second_are_those_of_the_last_measurement(name):
    cells = rows_of("Small images: measured")[name][2:]
    for setting, cell in zip(SETTINGS, cells, strict=True):
        seconds = [
            float(row["median_s"])
            for row in measured("speed_amd_epyc_avx512.csv")
            if row["model"] in (name, MEASURED_AS.get(name))
            and (row["setting"], row["mode"], row["size"], row["batch"], row["threads"])
            == (setting, "forward", "224", "8", "2")
        ]
        assert cell == (f"{8 / seconds[-1]:.1f}" if seconds else "")


@pytest.mark.parametrize("name", sorted(rows_of("Large images")))
def test_large_images_take_what_was_measured(name):
    found = [
        row
        for row in measured("high_resolution_amd_epyc_avx512.csv")
        if row["model"] == MEASURED_AS.get(name, name) or row["model"] == name
    ]
    expected = [row["cpu_s"] for row in found] + [found[-1]["peak_mib"]]
    assert rows_of("Large images")[name] == expected


def test_the_tables_have_rows():
    assert len(rows_of("Small images: measured")) == len(rows_of("Large images")) == 6
