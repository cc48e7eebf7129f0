import pytest

from robustness.reporting.published import published


@pytest.mark.parametrize(
    ("model", "benchmark", "metric", "value", "where"),
    [
        ("cvt_ls_13", "imagenet-a", "top-1", 27.0, "table 6"),
        ("cvt_ls_21", "imagenet-c-paper", "mCE", 55.2, "table 6"),
        ('cvt_ls_21(attention="full")', "imagenet-c-paper", "mCE", 56.2, "table 6"),
        ("cvt_ls_13", "imagenet-9", "top-1 mixed_same", 90.7, "table 6"),
        ("cvt_ls_13", "imagenet-9", "top-1 original", 97.0, "table 14"),
        ("cvt_ls_17", "imagenet-val", "ReaL top-1", 87.2, "table 5"),
        ("cvt_13.msft_in1k", "imagenet-val", "top-1", 81.6, "Microsoft"),
        ("resnet50.tv_in1k", "imagenet-r", "top-1", 36.157, "timm"),
        ("resnet50.tv_in1k", "imagenet-val", "top-1", 76.156, "timm"),
    ],
)
def test_printed_numbers_are_found_with_their_source(
    model: str, benchmark: str, metric: str, value: float, where: str
) -> None:
    found = published(model, benchmark, metric)
    assert found is not None
    assert found.value == value
    assert where in found.source


def test_the_papers_mce_does_not_stand_beside_the_official_protocol() -> None:
    assert published("cvt_ls_21", "imagenet-c", "mCE") is None


def test_weights_of_another_tag_have_no_published_number() -> None:
    assert published("resnet50", "imagenet-val", "top-1") is None
