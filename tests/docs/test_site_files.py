"""The page of measurements: every file can be had, and only narrow ones are tables of the page."""

import base64
import importlib.util
import json

import pytest
from documents import ROOT

pytest.importorskip("mkdocs", reason="needs the extra docs")

_spec = importlib.util.spec_from_file_location("site_files", ROOT / "docs" / "site_files.py")
site_files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(site_files)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(site_files, "RESULTS", tmp_path)
    return tmp_path


def test_a_narrow_file_folds_open_as_a_table(results):
    (results / "speed_small.csv").write_text("# torch,2.14\nmodel,ms\na<b,1\nc,2\n")
    page = site_files.benchmarks()
    assert (
        "\n[speed_small.csv](results/speed_small.csv): 2 rows of 2 columns. torch: 2.14.\n" in page
    )
    assert page.count("<details>") == 1
    assert "<th>model</th><th>ms</th>" in page
    assert "<td>a&lt;b</td><td>1</td>" in page


def test_a_wide_file_is_a_download_alone(results):
    columns = site_files.WIDEST + 1
    (results / "speed_wide.csv").write_text(",".join("abcdefghijklm"[:columns]) + "\n")
    page = site_files.benchmarks()
    assert f"[speed_wide.csv](results/speed_wide.csv): 0 rows of {columns} columns." in page
    assert "<table>" not in page


def test_a_comment_is_no_head_where_it_is_quoted_or_has_no_value(results):
    (results / "input.csv").write_text('"# image, crop","500 x 375, 224"\n# augmentation,\nms\n3\n')
    assert site_files.read(results / "input.csv") == (
        ["image, crop: 500 x 375, 224", "augmentation: none"],
        ["ms"],
        [["3"]],
    )


@pytest.mark.parametrize(
    ("stem", "said"),
    [
        ("sequence_amd", "Cost of a block by length, by `python -m benchmarks.sequence`."),
        ("sequence_runs_amd", "Trainings on sequences, by `python -m papers.sequence.compare`."),
        ("long_range", "What the projection carries, by `python examples/long_range.py`."),
    ],
)
def test_a_file_is_named_with_the_program_that_wrote_it(stem, said):
    assert site_files.origin(stem).startswith(said)


def test_the_programs_and_the_pages_of_the_files_are_there():
    for _, program, page in site_files.WHAT.values():
        name = program.partition(" ")[0].removesuffix(".py").replace(".", "/")
        assert (ROOT / f"{name}.py").is_file() or (ROOT / name).is_dir(), program
        assert (ROOT / "docs" / "evidence" / f"{page}.md").is_file(), page


def test_a_notebook_is_a_page_with_its_texts_and_pictures(tmp_path):
    png = base64.b64encode(b"picture").decode()
    outputs = [{"output_type": "stream", "text": ["one\n"]},
               {"output_type": "stream", "text": ["two\n"]},
               {"output_type": "display_data", "data": {"image/png": png}},
               {"output_type": "execute_result", "data": {"text/plain": ["(1, 2)"]}}]  # fmt: skip
    cells = [{"cell_type": "markdown", "source": ["# Title\n", "Words."]},
             {"cell_type": "code", "source": ["a\n", "b"], "outputs": outputs}]  # fmt: skip
    (tmp_path / "some.ipynb").write_text(json.dumps({"cells": cells}))
    page, pictures = site_files.notebook(tmp_path / "some.ipynb")
    assert page.startswith("# Title\nWords.\n\n[Download the notebook](some.ipynb)")
    assert "```python\na\nb\n```\n\n```text\none\ntwo\n```\n\n![" in page
    assert page.endswith("](some_1.png)\n\n```text\n(1, 2)\n```\n")
    assert pictures == {"some_1.png": b"picture"}


def test_every_committed_file_has_its_place_to_link_to():
    page = site_files.benchmarks()
    stems = [path.stem for path in site_files.RESULTS.glob("*.csv")]
    assert len(stems) > 10
    assert [stem for stem in stems if f"\n## {stem}\n" not in page] == []
