"""A hook of MkDocs: the files of the checkout that the site shows without a second copy."""

import csv
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog and the committed measurements."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog))
    files.append(File.generated(config, "benchmarks.md", content=benchmarks()))
    for path in sorted(RESULTS.glob("*.csv")):
        name = f"results/{path.name}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def benchmarks() -> str:
    """A page with each committed CSV as a table."""
    parts = [
        "# Benchmarks",
        "One CSV for each measurement and machine, as its command wrote it; the head of a file "
        "says where and when.",
    ]
    for path in sorted(RESULTS.glob("*.csv")):
        parts += [f"## {path.stem}", f"[{path.name}](results/{path.name})", table(path)]
    return "\n\n".join(parts) + "\n"


def table(path: Path) -> str:
    """The comments of a CSV in a paragraph, and its rows in Markdown."""
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = "; ".join(line.lstrip("# ").replace(",", ": ", 1) for line in lines if line[:1] == "#")
    head, *rows = csv.reader(line for line in lines if line[:1] != "#")
    body = [" | ".join(row) for row in (head, ["---"] * len(head), *rows)]
    return f"{notes}\n\n" + "\n".join(f"| {row} |" for row in body)
