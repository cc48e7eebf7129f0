"""What holds the pages together: their links, the navigation, the pictures."""

import re

import pytest
import timm
import yaml
from documents import PAGES, ROOT
from PIL import Image

from papers.pictures.architecture import MODELS, stages
from papers.pictures.attention import FOLDER, digest_of, panels

NOTEBOOKS = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
_LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_to_a_file(page):
    generated = {ROOT / "docs" / name for name in ("changelog.md", "benchmarks.md", *NOTEBOOKS)}
    for target in _LINK.findall(PAGES[page]):
        if "://" not in target:
            path = ((ROOT / page).parent / target).resolve()
            assert path.exists() or path in generated, target


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    # the tags of Python names, which only MkDocs knows
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    entries = re.findall(r"[\w/]+\.md", navigation)
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert sorted(entries) == sorted(pages | {"changelog.md", "benchmarks.md"} | NOTEBOOKS)
    assert yaml.safe_load(navigation)


def test_every_picture_is_on_a_page_and_small():
    text = "\n".join(PAGES.values())
    pictures = list((ROOT / "docs").rglob("*.png"))
    assert len(pictures) > 20
    for path in pictures:
        assert f"{path.name})" in text, f"{path} is on no page"
        assert path.stat().st_size < 150_000, path


def test_every_picture_has_words_for_those_who_do_not_see_it():
    for page, text in PAGES.items():
        for words in re.findall(r"!\[(.*?)\]", text, re.DOTALL):
            assert len(words) > 15, (page, words)


@pytest.mark.parametrize("family", MODELS)
def test_an_architecture_is_drawn_as_the_model_is_now(family):
    found = stages(timm.create_model(MODELS[family]).eval())
    with Image.open(FOLDER / f"architecture_{family}.png") as picture:
        assert picture.info["stages"] == repr(found)
    assert [stage.blocks for stage in found] == list(DEPTHS[family])


DEPTHS = {"vil_ls": (1, 2, 8, 1), "cvt_ls": (1, 2, 10), "cst_vit": (12,), "cst_vil": (1, 2, 8, 1)}


def test_pictures_show_the_attention_as_it_is_computed_now():
    drawn = panels()
    files = {panel.name: [panel] for panel in drawn} | {"attention": drawn}
    for name, shown in files.items():
        with Image.open(FOLDER / f"{name}.png") as picture:
            assert picture.info["weights"] == digest_of(shown), name


def test_a_picture_is_of_masks_that_hold():
    """A window has its tokens, a halo more, and the weights of each sum to one."""
    window, halo, projection, slices = (panel.weights for panel in panels())
    assert (window > 0).sum() == 16
    assert (halo > 0).sum() == 64
    assert (slices > 0).all()
    assert window.sum() == pytest.approx(1)
    assert halo.sum() == pytest.approx(1)
    assert slices.sum() == pytest.approx(2)  # local and global
    assert projection.sum((1, 2)) == pytest.approx(1)
