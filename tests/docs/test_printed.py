"""What a page says that its code prints, is what it prints."""

import contextlib
import io
import itertools

import pytest
import timm
import torch
from documents import blocks_of, run

import vit_ls

PAGES = ("docs/models/index.md", "docs/triton.md")
"""Pages on which a block of text says what the code above it prints."""


def printing():
    """Blocks of code, each with the text below it."""
    for page in PAGES:
        blocks = blocks_of(page)
        for code, text in itertools.pairwise(blocks):
            if (code.language, text.language) == ("python", "text"):
                yield pytest.param(code, text, id=str(code))


@pytest.mark.parametrize(("code", "text"), list(printing()))
def test_the_text_below_a_block_is_what_it_prints(code, text):
    if "cuda" in code.code and torch.cuda.is_available():
        pytest.skip("the text is that of a machine without a GPU")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run(code, {"__name__": "page", "timm": timm, "torch": torch, "vit_ls": vit_ls})
    assert printed.getvalue().strip() == text.code.strip()


def test_each_page_has_such_a_block():
    assert {param.values[0].page for param in printing()} == set(PAGES)
