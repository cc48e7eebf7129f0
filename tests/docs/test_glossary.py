"""The glossary is short, and the words that pages link to are in it."""

import re

from documents import PAGES

_TERM = re.compile(r"^### (.+)\n(.+)\n(?=\n|\Z)", re.M)
_LINK = re.compile(r"\]\([\w/.]*glossary\.md#([\w-]+)\)")
MOST = 40


def terms():
    return dict(_TERM.findall(PAGES["docs/glossary.md"]))


def test_there_are_at_most_40_terms_and_each_is_one_sentence():
    headings = re.findall(r"^### ", PAGES["docs/glossary.md"], re.M)
    assert len(headings) == len(terms()) <= MOST
    for term, sentence in terms().items():
        assert re.fullmatch(r"[^.]+(\.\S[^.]*)*\.", sentence), term


def test_a_word_that_a_page_links_to_is_a_term():
    known = {term.lower().replace(" ", "-") for term in terms()}
    for page, text in PAGES.items():
        linked = _LINK.findall(text)
        assert set(linked) <= known, page
    assert _LINK.findall(PAGES["docs/quickstart.md"])
