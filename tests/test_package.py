"""What surrounds the code: the overview, the version, the lists that others keep of it."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from families import MODELS

import vit_ls
from vit_ls.__main__ import overview

ROOT = Path(__file__).parents[1]


_OTHER = {"build", "dist", "docs", "notebooks", "output", "site", "tests"}


def runnable():
    """Calls of all files of the checkout that can be run, wherever they are."""
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in _OTHER or parts[0].startswith(".") or (ROOT / parts[0] / "bin").exists():
            continue
        guarded = re.search(r"""^if __name__ == ["']__main__["']""", path.read_text(), re.M)
        if guarded or path.name == "__main__.py":
            inside = (path.parent / "__init__.py").exists()
            module = ".".join(part for part in parts if part != "__main__")
            yield f"python -m {module}" if inside else f"python {'/'.join(parts)}.py"


def test_the_overview_names_every_model_and_every_command_with_what_it_does():
    text = overview()
    assert set(MODELS) <= set(text.split())
    listed = dict(re.findall(r"^  (python (?:-m )?\S+)  +(\S.*)$", text, re.M))
    assert sorted(listed) == sorted(runnable())
    known = {"python train.py", "python -m robustness.corrupt", "python -m vit_ls.weights"}
    assert known <= set(listed)
    assert all(len(says.split()) > 1 for says in listed.values())


def test_the_overview_marks_what_only_the_checkout_has():
    package, checkout = overview().split("commands of the source checkout only, which are not")
    assert package.count("python ") == package.count("python -m vit_ls")
    assert "python -m vit_ls" not in checkout


def test_the_overview_of_a_wheel_lists_what_is_installed(tmp_path):
    text = overview(tmp_path)
    assert "python -m vit_ls.visualize" in text
    assert "python -m robustness" not in text
    assert "python train.py, and more" in text.partition("not installed:")[2]


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == vit_ls.__version__
    assert len(citation["references"]) == 2


def test_every_lower_bound_is_a_constraint_of_the_lowest_versions():
    script = [sys.executable, str(ROOT / ".ci" / "lowest_versions.py")]
    printed = subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    needed = parser["options"]["install_requires"].split()
    assert needed
    assert {line.replace(">=", "==") for line in needed} <= set(printed)


def test_a_workflow_runs_scripts_that_are_there():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text())["jobs"].values()
        scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert scripts
        for script in scripts:
            assert (ROOT / script).stat().st_mode & 0o100, script


def test_contributing_lists_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert len(named) > 5
    for name in named:
        if not any(word in name for word in ("NAME", "FAMILY", "MODEL")):
            assert (ROOT / name).exists(), name


@pytest.mark.slow
def test_importing_the_package_takes_at_most_300_ms_more_than_timm():
    script = (
        "import time, timm; t = time.process_time(); import vit_ls; print(time.process_time() - t)"
    )
    seconds = [
        float(
            subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout
        )
        for _ in range(3)
    ]
    assert min(seconds) <= 0.3
