"""What surrounds the code: the overview, the version, the lists that others keep of it."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from families import MODELS

import vit_ls
from vit_ls.__main__ import overview

ROOT = Path(__file__).parents[1]


def test_the_overview_names_every_model_and_every_command_that_is_there():
    words = overview().split()
    assert set(MODELS) <= set(words)
    commands = [line.split()[1:] for line in overview().splitlines() if "  python " in line]
    for first, *rest in commands:
        path = rest[0].replace(".", "/") if first == "-m" else first
        assert any((ROOT / f"{path}{end}").exists() for end in ("", ".py")), path


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
