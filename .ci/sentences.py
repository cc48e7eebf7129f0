"""Words in the sentences of the pages: for each page its longest, and the share of long ones.

    python .ci/sentences.py             # every page
    python .ci/sentences.py PAGE.md     # these pages, with their long sentences

Code blocks, tables, headings, images, comments and the API's directives are left out. Inline code
counts as one word, a link as its text, and each item of a list has sentences of its own.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LONG = 28
"""Words that a sentence may have and not be long."""

MOST = 0.10
"""Share of long sentences that a page may have."""

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_LEFT_OUT = re.compile(r"^\s*(\||#{1,6} |:::|!!!|\?\?\?|---+$|</?\w[^>]*>\s*$)")
_ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+")
_QUOTE = re.compile(r"^\s*(>\s?)+")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|etc|vs|cf|approx|Eq|Fig|Sec)\.(?=\s)")
# what ends a sentence, quotes and brackets that close after it, and the start of the next one
_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z0-9`])")


def pages() -> list[Path]:
    """All pages for readers: the site's, and those beside the code."""
    beside = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*beside, *sorted((ROOT / "docs").rglob("*.md"))]


def sentences(text: str) -> list[str]:
    """The sentences of a page in Markdown, inline code as the word `code`."""
    found = []
    for paragraph in _paragraphs(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)):
        plain = _ABBREVIATION.sub(lambda match: match[1] + "_", _plain(paragraph))
        found += [part.strip() for part in _END.split(plain) if words(part)]
    return found


def words(sentence: str) -> int:
    """How many words a sentence has: what has a letter or a digit, between spaces."""
    return sum(any(char.isalnum() for char in word) for word in sentence.split())


def share_of_long(found: list[str]) -> float:
    """Of 1; 0 for a page without sentences."""
    return sum(words(sentence) > LONG for sentence in found) / max(len(found), 1)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each in one line."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if opened and (not fence or opened[1].startswith(fence)):
            fence = "" if fence else opened[1]
            line = ""
        elif fence or _LEFT_OUT.match(line):
            line = ""
        line = _QUOTE.sub("", line)
        item = _ITEM.match(line)
        if lines and (item or not line.strip()):
            yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(line[item.end() :] if item else line.strip())
    if lines:
        yield " ".join(lines)


def _plain(paragraph: str) -> str:
    """A paragraph without images, addresses and marks of style."""
    text = re.sub(r"(`+)(?:(?!\1).)+\1", "`code`", paragraph)
    text = re.sub(r"!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])", "", text)
    text = re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"<[^>]+>", "", text)
    return text.replace("**", "")


def main() -> None:
    """Print the table, and the long sentences of the pages that are named."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    sys.stdout.write(f"{'page':40} sentences  longest  over {LONG} words\n")
    for page in named or pages():
        found = sentences(page.read_text(encoding="utf-8"))
        longest = max(map(words, found), default=0)
        share = share_of_long(found)
        mark = "" if share <= MOST else f"  above {MOST:.0%}"
        name = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else str(page)
        sys.stdout.write(f"{name:40} {len(found):9} {longest:8} {share:13.1%}{mark}\n")
        if named:
            long = [sentence for sentence in found if words(sentence) > LONG]
            sys.stdout.writelines(f"  {words(sentence)}: {sentence}\n" for sentence in long)


if __name__ == "__main__":
    main()
