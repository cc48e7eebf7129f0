"""The code blocks of the README and of the pages in docs, for the tests that run them."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    )
}
"""Text of each page by its path from the root."""


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block; `line` is that of its first line of code, counted from 1."""

    page: str
    line: int
    language: str
    code: str
    slow: bool
    """Whether `<!-- slow -->` stands above it."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[CodeBlock]:
    """All of a page, in order; "" is the language of the plain ones."""
    found, above, begun = [], "", None
    for number, text in enumerate(PAGES[page].splitlines(), start=1):
        if begun is None and text.startswith("```"):
            begun = CodeBlock(page, number + 1, text[3:].strip(), "", above == "<!-- slow -->")
            lines: list[str] = []
        elif begun is not None and text == "```":
            found.append(CodeBlock(page, begun.line, begun.language, "\n".join(lines), begun.slow))
            begun = None
        elif begun is not None:
            lines.append(text)
        above = text.strip() or above
    return found


def run(block: CodeBlock, names: dict[str, object]) -> None:
    """Run it with the names of the blocks before it; errors show the line of the page."""
    code = compile("\n" * (block.line - 1) + block.code, block.page, "exec")
    exec(code, names)
