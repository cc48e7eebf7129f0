import pytest

from robustness.reporting.published import published
from robustness.reporting.report import to_markdown
from robustness.rules.results import CellResult, Report, Result

KEYS = ("origin", "weights", "dtype", "class")


@pytest.mark.parametrize(
    ("model", "benchmark", "metric", "value", "where"),
    [
        ("cvt_ls_13", "imagenet-a", "top-1", 27.0, "table 6"),
        ("cvt_ls_21", "imagenet-c-paper", "mCE", 55.2, "table 6"),
        ("cvt_21.msft_in1k", "imagenet-c-paper", "mCE", 56.2, "table 6; most likely"),
        ("cvt_13.msft_in1k", "imagenet-a", "top-1", 25.4, "table 6; most likely"),
        ("cvt_21.msft_in1k", "imagenet-9", "top-1 mixed_rand", 85.0, "table 6; most likely"),
        ("cvt_13.msft_in1k", "imagenet-val", "ReaL top-1", 86.7, "table 5"),
        ("cvt_21_384.msft_in1k", "imagenet-v2-matched-frequency", "top-1", 71.9, "table 5"),
        ('cvt_ls_13(attention="full")', "imagenet-val", "top-1", 81.1, "in its text"),
        ("cvt_ls_13(dual_ln=false)", "imagenet-val", "top-1", 81.3, "in its text"),
        ("deit_small_patch16_224.fb_in1k", "imagenet-9", "top-1 original", 97.1, "table 14"),
        ("deit_small_patch16_224.fb_in1k", "imagenet-c-paper", "mCE", 57.1, "table 6"),
        ("resnet50.tv_in1k", "imagenet-a", "top-1", 6.2, "torchvision's have 0.0"),
        ("resnet50.tv_in1k", "imagenet-9", "top-1 mixed_same", 87.1, "perhaps of other weights"),
        ("swin_small_patch4_window7_224.ms_in1k", "imagenet-val", "top-1", 83.2, "table 5"),
        ("vil_ls_base", "imagenet-val", "top-1", 84.1, "table 5"),
        ("vil_ls_base.in1k", "imagenet-val", "top-1", 84.1, "table 5"),
        ("cvt_ls_13", "imagenet-9", "top-1 mixed_same", 90.7, "table 6"),
        ("cvt_ls_13", "imagenet-9", "top-1 original", 97.0, "table 14"),
        ("cvt_ls_17", "imagenet-val", "ReaL top-1", 87.2, "table 5"),
        ("cvt_13.msft_in1k", "imagenet-val", "top-1", 81.6, "Microsoft"),
    ],
)
def test_printed_numbers_are_found_with_their_source(
    model: str, benchmark: str, metric: str, value: float, where: str
) -> None:
    (found,) = published(model, benchmark, metric)
    assert found.value == value
    assert where in found.source


@pytest.mark.parametrize(
    ("model", "benchmark", "timms", "papers"),
    [
        ("resnet50.tv_in1k", "imagenet-r", 36.157, 35.3),
        ("resnet50.tv_in1k", "imagenet-val", 76.156, 76.2),
        ("deit_small_patch16_224.fb_in1k", "imagenet-a", 18.72, 19.0),
        ("deit_small_patch16_224.fb_in1k", "imagenet-r", 42.27, 41.9),
    ],
)
def test_where_two_are_printed_timms_stands_first(
    model: str, benchmark: str, timms: float, papers: float
) -> None:
    first, second = published(model, benchmark, "top-1")
    assert (first.value, second.value) == (timms, papers)
    assert "timm" in first.source
    assert "arXiv:2107.02192" in second.source


def test_the_report_has_all_that_is_printed() -> None:
    result = Result("imagenet-r", "accuracy", "r", "", "", {}, 5, ["all"])
    result.cells = {"all": CellResult({"top1": 3, "top5": 4, "images": 5})}
    report = Report(
        {"name": "resnet50.tv_in1k", **dict.fromkeys(KEYS, ""), "arguments": {}}, [result]
    )
    (row,) = [line for line in to_markdown(report).splitlines() if "| top-1 |" in line]
    assert "36.157 (timm" in row
    assert "; 35.3 (arXiv:2107.02192, table 6; perhaps of other weights" in row


def test_the_papers_mce_does_not_stand_beside_the_official_protocol() -> None:
    assert not published("cvt_ls_21", "imagenet-c", "mCE")


def test_the_papers_full_attention_has_no_number_of_microsofts() -> None:
    for benchmark in ("imagenet-a", "imagenet-r"):
        assert not published('cvt_ls_13(attention="full")', benchmark, "top-1")
    assert not published('cvt_ls_13(attention="full")', "imagenet-c-paper", "mCE")


def test_weights_of_another_tag_have_no_published_number() -> None:
    assert published("resnet50", "imagenet-val", "top-1") == ()
