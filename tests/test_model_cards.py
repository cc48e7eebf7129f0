"""The cards in docs/models are those of the models as they are now."""

import csv

import pytest
import timm
from families import MODELS, SMALL

from benchmarks.speed.subjects import SUBJECTS
from papers.measured import MEASURED, NAMES, speed_table
from papers.model_cards import FAMILIES, FOLDER, models_of, rest
from vit_ls.count import count_params
from vit_ls.paper import LONG_SHORT_TABLE_5, named

CARDS = {family: (FOLDER / f"{family}.md").read_text() for family in FAMILIES}


def measurements():
    with MEASURED.open(newline="") as file:
        return list(csv.DictReader(file))


def row(name, size):
    text = "\n".join(CARDS.values())
    line = next(r for r in text.splitlines() if r.startswith(f"| `{name}` | {size} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_model_is_on_one_card():
    listed = [name for family in FAMILIES for name in models_of(family)]
    assert sorted(listed + SMALL) == sorted(MODELS)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SMALL])
def test_a_row_says_what_the_model_is(name):
    model = timm.create_model(name, device="meta")
    params = row(name, model.pretrained_cfg["input_size"][-1])[2]
    assert params == f"{count_params(model) / 1e6:.2f}"


@pytest.mark.parametrize("family", FAMILIES)
def test_speed_memory_maps_and_limits_of_a_card_are_those_of_the_files_and_models_now(family):
    _, head, below = CARDS[family].partition("## How fast is it")
    assert head + below == rest(family)


def test_a_measured_name_is_the_call_that_was_measured():
    for name in {row["model"] for row in measurements()}:
        subject = SUBJECTS[name]
        if not subject.change and timm.model_entrypoint(subject.model).__module__.startswith("vit"):
            assert NAMES.get(name, name) == named(subject.model, subject.options)


def test_speed_is_the_newest_row_of_the_file_and_the_latency_of_the_paper():
    table = speed_table(("vil_ls_",))
    rows = [r for r in measurements() if r["model"] == "vil_ls_medium"]
    newest = [r for r in rows if (r["setting"], r["mode"]) == ("float32", "forward")][-1]
    values = f"8 | {newest['images_per_s']} | {newest['peak_mb']} |"
    assert f"| `vil_ls_medium` | 224 | inference, float32 | {values}" in table
    assert f"| `vil_ls_medium` | 224 | the paper's, one V100 | 32 | {32 / 0.075:.0f} |  |" in table
    assert "fused" not in table
    assert "plain" not in table
    assert speed_table(("no_such_",)) == ""


def test_an_accuracy_says_where_it_is_printed():
    table_5 = "[arXiv:2107.02192](../papers.md), its table 5"
    assert row("vil_ls_medium", 224)[4:] == ["83.8", table_5]
    assert row("cvt_ls_13(dual_ln=false)", 224)[4:] == ["81.3", table_5.replace("table 5", "text")]
    released = ["86.11", "[`msft_in22k_ft_in1k`](../weights.md)"]
    assert row("vil_base_384", 384)[4:] == released
    assert row("cst_vit_small_patch16_224", 224)[4:] == ["", ""]


OURS = [row for row in LONG_SHORT_TABLE_5 if row.model and row.model.startswith(("cvt", "vil"))]


@pytest.mark.parametrize("printed", OURS, ids=lambda r: f"{r.title}@{r.img_size}")
def test_a_row_has_the_numbers_of_the_paper(printed):
    title = named(printed.model.partition(".")[0], printed.options)
    _, _, _, flops, top1, _ = row(title, printed.img_size)
    if printed.flops is not None:
        # the paper's FLOPs of ViL fit a smaller window than ViL's
        rel = 0.06 if printed.model.startswith("vil_") and "_ls_" not in printed.model else 0.026
        assert float(flops) == pytest.approx(printed.flops, rel=rel)
    if printed.top1 is not None:
        assert top1 == f"{printed.top1:.1f}"


@pytest.mark.parametrize(
    ("title", "size", "top1"),
    [
        ("cvt_13", 224, "81.6"),
        ("cvt_21_384", 384, "83.3"),
        ('cvt_ls_13(attention="full")', 224, "81.1"),
        ('cvt_ls_21(attention="full")', 224, ""),
        ('cvt_ls_13(attention="full")', 384, ""),
        ("cvt_ls_13(dual_ln=false)", 224, "81.3"),
    ],
)
def test_a_card_gives_no_model_the_accuracy_of_another(title, size, top1):
    assert row(title, size)[4] == top1
