"""The rooms and ways in docs/development.md are those of the code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.landing
def test_the_page_shows_the_rooms_and_ways_of_the_code() -> None:
    script = ROOT / ".ci" / "ways.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    assert done.stdout.count("\n") > 40
    assert done.stdout.strip() in page, "python .ci/ways.py --write brings the page up to date"
