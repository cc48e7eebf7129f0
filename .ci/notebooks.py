"""Run the notebooks and keep what they show: notebooks/NAME.ipynb beside each NAME.py.

    python .ci/notebooks.py                 # all, a few minutes on a CPU
    python .ci/notebooks.py finetune export

Each runs in a folder of its own, so that none needs to be started in the checkout; the first cell,
which installs the package, is left out. The site shows the files. Needs the extras `docs`,
`openvino` and `examples`.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
LINES = 30
"""Of text that a cell may show."""


def run(path: Path, folder: Path) -> Any:
    """The notebook of a file of cells, after a run in a folder."""
    import jupytext
    import nbclient

    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        skip_cells_with_tag="skip-execution",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return notebook


def kept(output: Any) -> Any | None:
    """What is kept of an output: text of few lines, or a picture; no warnings."""
    if output["output_type"] == "stream":
        if output["name"] == "stderr":
            return None
        output["text"] = _few(output["text"])
    elif "data" in output:
        output["metadata"] = {}
        data = output["data"]
        if "image/png" in data:
            output["data"] = {"image/png": data["image/png"]}
        else:
            output["data"] = {"text/plain": _few(data["text/plain"])}
    return output


def _few(text: str) -> str:
    # folders of the cells' own, which are another one in each run
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/[^/\s]+/", "", text)
    lines = text.splitlines()
    return "\n".join([*lines[:LINES], *(["..."] if len(lines) > LINES else [])]) + "\n"


def main() -> None:
    """Run the named ones, or all."""
    import nbformat

    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    parser = argparse.ArgumentParser(description="Run notebooks and keep what they show.")
    parser.add_argument("names", nargs="*", choices=[*names, []], default=names)
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(FOLDER / f"{name}.py", Path(folder))
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
            cell["metadata"].pop("execution", None)
            if cell["cell_type"] == "code":
                cell["execution_count"] = None
                cell["outputs"] = [o for o in map(kept, cell["outputs"]) if o is not None]
                for output in cell["outputs"]:
                    if "execution_count" in output:
                        output["execution_count"] = None
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
