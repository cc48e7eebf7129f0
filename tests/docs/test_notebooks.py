"""The notebooks run from the first cell to the last, each in a kernel of its own."""

import json

import pytest
from documents import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
_HOLDS = {
    "finetune": "assert min(map(max, (source, tuned, scratch))) > 80, (source, tuned, scratch)",
    "segmentation": "assert iou > 0.5, iou",
    "attention": "assert rows and all(0 < share < 1 for share in spread.values()), spread",
    "robustness": "assert all(number.value is not None for number in metrics(report))",
    "high_resolution": "assert 0 < other < near, (near, other)",
    "export": "assert max(max(pair) for pair in apart.values()) < 1e-4, apart",
}
"""What must be true at the end of each."""


def test_each_notebook_has_something_to_hold():
    assert [path.stem for path in NOTEBOOKS] == sorted(_HOLDS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_shown_of_a_notebook_is_of_its_cells_now(path):
    jupytext = pytest.importorskip("jupytext", reason="needs the extra docs")
    written = [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]
    kept = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in kept] == written
    assert path.with_suffix(".ipynb").stat().st_size < 300_000
    first = next(cell for cell in kept if cell["cell_type"] == "code")
    assert "%pip install" in "".join(first["source"])
    assert first["metadata"]["tags"] == ["skip-execution"]
    assert any(cell.get("outputs") for cell in kept)
    text = json.dumps([cell.get("outputs") for cell in kept])
    assert "Traceback" not in text
    assert str(ROOT) not in text


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore")  # of the kernel's libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_any_folder(path, monkeypatch, tmp_path):
    jupytext = pytest.importorskip("jupytext", reason="needs the extra docs")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra docs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = jupytext.read(path)
    end = jupytext.reads(f"# %%\n{_HOLDS[path.stem]}\n", fmt="py:percent").cells
    notebook.cells.extend(cell for cell in end if cell.cell_type == "code")
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        skip_cells_with_tag="skip-execution",  # installs the package
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
