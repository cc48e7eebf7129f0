"""Pages are written in short sentences; those that are not yet are listed, and the list shrinks."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "sentences.py"

_spec = importlib.util.spec_from_file_location("sentences", SCRIPT)
rule = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rule)

PAGES = {path.relative_to(ROOT).as_posix(): path for path in rule.pages()}


def share(page):
    return rule.share_of_long(rule.sentences(PAGES[page].read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", sorted(PAGES))
def test_at_most_a_tenth_of_a_pages_sentences_are_long(page):
    assert share(page) <= rule.MOST, f"python .ci/sentences.py {page} shows them"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two. Three four five.", [2, 3]),
        ("One two\nthree. Four", [3, 1]),
        ("# A heading of words\n\nOne two.", [2]),
        ("| a | table |\n| --- | --- |\n| of | words |\n\nOne.", [1]),
        ("One two:\n\n```python\nfour = five\n```\n\nSix.", [2, 1]),
        ("```\nnever closed\n", []),
        ("````\n```\nstill code\n```\n````\nOne.", [1]),
        ("- One two\n- three\n  four. Five\n2. Six", [2, 2, 1, 1]),
        ("Call `python -m vit_ls.x --out a b` now.", [3]),
        ("It ends. `vit_ls.record` starts.", [2, 2]),
        ('He said "no." Then "Yes" came.', [3, 3]),
        ("See [the long text](a/b_c.md#d) here.", [5]),
        ("![a picture of words](a.png)", []),
        ("![a picture](a.png) One.", [1]),
        ("<!-- slow\nand long -->\nOne two.", [2]),
        ("Some are long, e.g. This one. Smith et al. Said so.", [6, 5]),
        ("At 1.5 GFLOPs it takes 0.95 times. So.", [7, 1]),
        ("Is it? Yes! **Bold** words.", [2, 1, 2]),
        ("a - b + c", [3]),
        ("::: vit_ls.grid\n\nOne.", [1]),
        ("> One two.\n> Three.", [2, 1]),
    ],
)
def test_sentences_are_told_apart(text, expected):
    assert [rule.words(sentence) for sentence in rule.sentences(text)] == expected


@pytest.mark.parametrize(("words", "long"), [(28, 0), (29, 1)])
def test_a_sentence_is_long_above_28_words(words, long):
    text = " ".join(["word"] * words) + ".\n\nShort."
    assert rule.share_of_long(rule.sentences(text)) == long / 2


def test_the_script_prints_the_longest_sentence_and_the_share_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(" ".join(["word"] * 30) + ".\n\nShort one.\n")
    command = [sys.executable, str(SCRIPT), str(page)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, row, long = printed.splitlines()
    assert row.split()[1:5] == ["2", "30", "50.0%", "above"]
    assert long.strip().startswith("30: word")
