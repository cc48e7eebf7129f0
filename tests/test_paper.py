"""Every number of vit_ls.paper against a second reading of the papers, and docs/papers.md."""

from pathlib import Path

import pytest
import timm

from papers.paper_table import TABLES, as_markdown, cost_table
from vit_ls.paper import LONG_SHORT_TABLE_5, LONG_SHORT_TABLE_6, LONG_SHORT_TEXT, RELEASED

PAGE = (Path(__file__).parents[1] / "docs" / "papers.md").read_text()

# printed name | size | params M | FLOPs G | top-1 | ReaL | V2 | latency s
TABLE_5 = """
ResNet-50     | 224 | 25   | 4.1   | 76.2 | 82.5 | 63.3 | -
ResNet-101    | 224 | 45   | 7.9   | 77.4 | 83.7 | 65.7 | -
ResNet-152    | 224 | 60   | 11    | 78.3 | 84.1 | 67.0 | -
DeiT-S        | 224 | 22   | 4.6   | 79.8 | 85.7 | 68.5 | -
DeiT-B        | 224 | 86   | 17.6  | 81.8 | 86.7 | 70.9 | -
PVT-Medium    | 224 | 44   | 6.7   | 81.2 | -    | -    | -
PVT-Large     | 224 | 61   | 9.8   | 81.7 | -    | -    | -
Swin-S        | 224 | 50   | 8.7   | 83.2 | -    | -    | -
Swin-B        | 224 | 88   | 15.4  | 83.5 | -    | -    | 0.115
PVTv2-B4      | 224 | 62.6 | 10.1  | 83.6 | -    | -    | -
PVTv2-B5      | 224 | 82.0 | 11.8  | 83.8 | -    | -    | -
ViT-B/16      | 384 | 86   | 55.5  | 77.9 | -    | -    | -
ViT-L/16      | 384 | 307  | 191.1 | 76.5 | -    | -    | -
DeiT-B        | 384 | 86   | 55.5  | 83.1 | -    | -    | -
Swin-B        | 384 | 88   | 47.1  | 84.5 | -    | -    | 0.378
CvT-13        | 224 | 20   | 6.7   | 81.6 | 86.7 | 70.4 | 0.122
CvT-21        | 224 | 32   | 10.1  | 82.5 | 87.2 | 71.3 | 0.165
CvT*-LS-13    | 224 | 20.3 | 4.9   | 81.9 | 87.0 | 70.5 | 0.083
CvT*-LS-17    | 224 | 23.7 | 9.8   | 82.5 | 87.2 | 71.6 | -
CvT*-LS-21    | 224 | 32.1 | 7.9   | 82.7 | 87.5 | 71.9 | 0.122
CvT*-LS-21S   | 224 | 30.1 | 11.3  | 82.9 | 87.4 | 71.7 | -
CvT-13        | 384 | 20   | 31.9  | 83.0 | 87.9 | 71.9 | -
CvT-21        | 384 | 32   | 45.0  | 83.3 | 87.7 | 71.9 | -
CvT*-LS-21    | 384 | 32.1 | 23.9  | 83.2 | 88.0 | 72.5 | -
CvT*-LS-21    | 448 | 32.1 | 34.2  | 83.6 | 88.2 | 72.9 | -
ViL-Small     | 224 | 24.6 | 4.9   | 82.4 | -    | -    | -
ViL-Medium    | 224 | 39.7 | 8.7   | 83.5 | -    | -    | 0.106
ViL-Base      | 224 | 55.7 | 13.4  | 83.7 | -    | -    | 0.164
ViL-LS-Medium | 224 | 39.8 | 8.7   | 83.8 | -    | -    | 0.075
ViL-LS-Base   | 224 | 55.8 | 13.4  | 84.1 | -    | -    | 0.113
ViL-LS-Medium | 384 | 39.9 | 28.7  | 84.4 | -    | -    | 0.271
"""

# printed name | mCE | A | R | ImageNet-9 original (table 14) | mixed-same | mixed-rand
TABLE_6 = """
ResNet-50  | 78.9 | 6.2  | 35.3 | 94.9 | 87.1 | 81.6
DeiT-S     | 57.1 | 19.0 | 41.9 | 97.1 | 89.1 | 84.2
CvT-13     | 59.6 | 25.4 | 42.9 | -    | 90.5 | 85.7
CvT-21     | 56.2 | 31.1 | 42.6 | -    | 90.5 | 85.0
CvT*-LS-13 | 58.7 | 27.0 | 42.6 | 97.0 | 90.7 | 85.6
CvT*-LS-21 | 55.2 | 29.3 | 45.0 | 97.2 | 91.5 | 85.8
"""


def read(table):
    """Name -> numbers, None for a dash; the size of table 5 is a part of the name."""
    lines = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return [(name, [None if c == "-" else float(c) for c in cells]) for name, *cells in lines]


def as_printed(rows):
    """Rows of one name and size put together, as the paper has them; each number from one row."""
    found = {}
    for row in rows:
        cells = found.setdefault((row.printed, row.img_size), {"params": row.params})
        assert cells["params"] == row.params
        for name in ("flops", "top1", "real", "v2", "latency"):
            if (value := getattr(row, name)) is not None:
                assert name not in cells, f"{row.printed} has two values of {name}"
                cells[name] = value
    names = ("params", "flops", "top1", "real", "v2", "latency")
    return [
        (name, [float(size), *(cells.get(key) for key in names)])
        for (name, size), cells in found.items()
    ]


def test_table_5_is_what_the_paper_prints_row_by_row():
    assert as_printed(LONG_SHORT_TABLE_5) == read(TABLE_5)


def test_tables_6_and_14_are_what_the_paper_prints_row_by_row():
    rows = [
        (r.printed, [r.mce, r.a, r.r, r.in9_original, r.in9_same, r.in9_rand])
        for r in LONG_SHORT_TABLE_6
    ]
    assert rows == read(TABLE_6)


def test_accuracies_of_cvt_are_microsofts_and_costs_those_of_the_papers_own():
    rows = [row for row in LONG_SHORT_TABLE_5 if row.printed in ("CvT-13", "CvT-21")]
    accurate = {row.title for row in rows if row.top1 or row.real or row.v2}
    costly = {row.title for row in rows if row.flops or row.latency}
    assert accurate == {
        *("cvt_13.msft_in1k", "cvt_21.msft_in1k"),
        *("cvt_13_384.msft_in1k", "cvt_21_384.msft_in1k"),
    }
    assert costly == {'cvt_ls_13(attention="full")', 'cvt_ls_21(attention="full")'}


def test_accuracies_of_cvt_agree_with_microsofts_own_table():
    released = {row.tag: row.top1 for row in RELEASED}
    rows = [row for row in LONG_SHORT_TABLE_5 if row.model in released]
    assert len(rows) == 4
    for row in rows:
        assert row.top1 == released[row.model]


def test_table_6_says_where_it_is_not_sure_whose_weights_these_are():
    doubtful = {row.model for row in LONG_SHORT_TABLE_6 if row.doubt}
    assert doubtful == {"resnet50.tv_in1k", "cvt_13.msft_in1k", "cvt_21.msft_in1k"}


def test_the_text_adds_the_papers_own_cvt_and_the_model_without_dual_ln():
    found = {row.title: (row.img_size, row.top1) for row in LONG_SHORT_TEXT}
    assert found == {
        'cvt_ls_13(attention="full")': (224, 81.1),
        "cvt_ls_13(dual_ln=false)": (224, 81.3),
    }


@pytest.mark.parametrize("row", LONG_SHORT_TABLE_5, ids=lambda r: f"{r.title}-{r.img_size}")
def test_a_row_names_a_model_of_its_size(row):
    if row.model is None:
        assert row.printed in ("PVT-Medium", "PVT-Large", "ViT-B/16", "ViT-L/16")
        return
    assert timm.is_model(row.model.partition(".")[0])
    released = "." in row.model
    assert (row.model in timm.list_pretrained(row.model)) == released
    if row.options == {} or released:
        assert timm.get_pretrained_cfg(row.model).input_size[-1] == row.img_size


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_the_table_as_the_script_writes_it(table):
    assert as_markdown(table()) in PAGE


def test_all_that_is_printed_is_in_a_table_of_at_most_six_columns():
    shown = [list(table()) for table in TABLES]
    assert max(len(row) for rows in shown for row in rows) == 6
    latencies = [row.latency for row in LONG_SHORT_TABLE_5 if row.latency is not None]
    assert [float(row[-1]) for row in shown[1][1:] if row[-1]] == latencies
    accuracies = [row.top1 for row in (*LONG_SHORT_TABLE_5, *LONG_SHORT_TEXT) if row.top1]
    assert [float(row[3]) for row in shown[0][1:]] == accuracies
    assert [float(row[2]) for row in shown[2][1:]] == [row.mce for row in LONG_SHORT_TABLE_6]


def test_the_page_has_a_row_of_costs_for_each_that_is_printed():
    printed = [
        f"| `{row.title}` | {row.img_size} | {row.params:g} |"
        for row in LONG_SHORT_TABLE_5
        if row.flops and row.model and row.model.startswith(("cvt", "vil"))
    ]
    head = "| " + " | ".join(next(cost_table())) + " |"
    lines = PAGE[PAGE.index(head) :].splitlines()[2 : 2 + len(printed)]
    assert [line[: len(start)] for line, start in zip(lines, printed, strict=True)] == printed
    assert len(printed) == 16
