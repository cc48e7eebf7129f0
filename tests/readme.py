"""Code of the README, for the tests that run it."""

from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def section(title: str) -> str:
    """The text under a heading of the second level."""
    text = README.read_text()
    start = text.index(f"\n## {title}\n")
    end = text.find("\n## ", start + 1)
    return text[start : end if end >= 0 else None]


def blocks(title: str, language: str = "python") -> list[str]:
    """Its code blocks of a language; "" for the plain ones."""
    parts = section(title).split("```")[1::2]
    return [code for part in parts for head, _, code in [part.partition("\n")] if head == language]
