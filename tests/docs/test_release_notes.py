"""The text of a release is the changelog's section of its version."""

import subprocess
import sys
from pathlib import Path

import vit_ls

ROOT = Path(__file__).parents[2]


def said(version: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / ".ci" / "release_notes.py"), version]
    return subprocess.run(argv, capture_output=True, text=True)


def test_the_present_version_has_notes_and_those_of_no_other() -> None:
    notes = said(vit_ls.__version__)
    assert notes.returncode == 0, notes.stderr
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert notes.stdout.strip() in text
    assert "\n## " not in notes.stdout
    assert notes.stdout != said("0.1.0").stdout != ""


def test_an_unknown_version_is_one_line_that_names_the_known_ones() -> None:
    refused = said("9.9")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "0.1.0" in refused.stderr
