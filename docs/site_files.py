"""A hook of MkDocs: the files of the checkout that the site shows without a second copy."""

import base64
import csv
import json
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NOTEBOOKS = ROOT / "notebooks"

WIDEST = 8
"""Columns that a table of the page may have; wider files are downloaded only."""

WHAT = {
    "ablations": (
        "Options of the attention, trained on digits",
        "papers.ablations",
        "ablations",
    ),
    "high_resolution": ("Large images", "examples/high_resolution.py --cost", "comparisons"),
    "input": ("Loading of images", "benchmarks.input", "speed"),
    "long_range": ("What the projection carries", "examples/long_range.py", "comparisons"),
    "replaced": ("ViTs in windows beside their originals", "benchmarks.speed", "comparisons"),
    "replaced_runs": ("What a ViT keeps in windows", "papers.replaced", "comparisons"),
    "rules": ("Kernels of attention, and the one that is chosen", "benchmarks.rules", "kernels"),
    "sequence": ("Cost of a block by length", "benchmarks.sequence", "sequences"),
    "sequence_runs": ("Trainings on sequences", "papers.sequence.compare", "sequences"),
    "speed": ("Whole models", "benchmarks.speed", "speed"),
    "triton_kernel": ("Registers and memory of kernels", "benchmarks.gpu.compiled", "kernels"),
}
"""By how a file's name begins: what it measures, the program that wrote it, and its evidence."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, the committed measurements, and the notebooks with what they show."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changelog))
    files.append(File.generated(config, "benchmarks.md", content=benchmarks()))
    for path in sorted(RESULTS.glob("*.csv")):
        name = f"results/{path.name}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page, pictures = notebook(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, and its pictures by their names."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in cells:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                name = f"{path.stem}_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(output["data"]["image/png"]))
                parts.append(f"![What the cell above draws]({name})")
            else:
                text = "".join(output.get("text") or output["data"]["text/plain"]).rstrip()
                if parts[-1].startswith("```text"):  # a cell prints in pieces
                    text = f"{parts.pop()[8:-4]}\n{text}"
                parts.append(f"```text\n{text}\n```")
    first, *rest = parts
    link = f"[Download the notebook]({path.name}) with these outputs, as its last run left them."
    return "\n\n".join([first, link, *rest]) + "\n", pictures


def benchmarks() -> str:
    """A page that says what each committed CSV holds; narrow ones fold open as tables."""
    parts = [
        "# Download the measurements",
        "Each file is one measurement on one machine, as its command wrote it. Open a table here, "
        "or download the file. [Evidence](evidence/speed.md) explains the numbers.",
    ]
    for path in sorted(RESULTS.glob("*.csv")):
        notes, head, rows = read(path)
        link = f"[{path.name}](results/{path.name}): {len(rows)} rows of {len(head)} columns."
        noted = f" {'; '.join(notes)}." if notes else ""
        parts += [f"## {path.stem}", origin(path.stem), link + noted]
        if len(head) <= WIDEST:
            parts.append(folded(head, rows))
    return "\n\n".join(parts) + "\n"


def origin(stem: str) -> str:
    """What a file measures, and by which program."""
    what, program, page = WHAT[max((name for name in WHAT if stem.startswith(name)), key=len)]
    call = program if program.startswith("examples/") else f"-m {program}"
    return f"{what}, by `python {call}`. [Explained](evidence/{page}.md)."


def read(path: Path) -> tuple[list[str], list[str], list[list[str]]]:
    """The comments above a CSV as `name: value`, its head, and its rows."""
    notes = []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    while rows[0][0].startswith("#"):
        name, *value = rows.pop(0)
        notes.append(f"{name.lstrip('# ')}: {', '.join(value) or 'none'}")
    return notes, rows[0], rows[1:]


def folded(head: list[str], rows: list[list[str]]) -> str:
    """A table behind a line to click, as HTML: Markdown does not look inside."""
    body = "".join(_row(row, "td") for row in rows)
    table = f"<table><thead>{_row(head, 'th')}</thead><tbody>{body}</tbody></table>"
    return f"<details><summary>Show the table</summary>{table}</details>"


def _row(cells: list[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
