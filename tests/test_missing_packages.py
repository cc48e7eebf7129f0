"""A command without an optional package: one line that says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vit_ls.errors import MissingPackageError, check_packages

ROOT = Path(__file__).parents[1]

# what the path's finder would say were they not installed
_WITHOUT = """
import os, sys
from importlib.machinery import PathFinder

gone = os.environ["GONE"].split()


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        gone_too = name.partition(".")[0] in gone
        return None if gone_too else super().find_spec(name, path, target)


sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
"""


def run_without(folder, packages, *words):
    (folder / "sitecustomize.py").write_text(_WITHOUT)
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = os.environ | {"GONE": packages, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_packages_that_are_there_are_no_error():
    check_packages("the test", "json", "pytest", extra="test")


def test_a_missing_package_is_named_with_what_installs_it():
    with pytest.raises(MissingPackageError) as error:
        check_packages("the test", "pytest", "no_such_a", "no_such_b", extra="test")
    assert str(error.value) == (
        "the test needs no_such_a, no_such_b: "
        "pip install no_such_a no_such_b, or in the checkout pip install -e '.[test]'."
    )


@pytest.mark.landing
@pytest.mark.parametrize(
    ("gone", "words", "needs"),
    [
        ("matplotlib", "vit_ls.visualize --model test_cvt_ls", "vit_ls.visualize needs matplotlib"),
        ("scipy", "robustness --doctor --data-root .", "robustness needs scipy"),
        ("matplotlib scipy", "robustness.page a", "robustness needs matplotlib, scipy"),
    ],
)
def test_a_command_without_a_package_is_one_line_and_status_3(tmp_path, gone, words, needs):
    ended = run_without(tmp_path, gone, *words.split())
    assert ended.returncode == 3, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert f"{needs}: pip install " in line
    assert [file.name for file in tmp_path.iterdir() if file.name != "__pycache__"] == [
        "sitecustomize.py"
    ]


@pytest.mark.landing
def test_help_needs_no_package(tmp_path):
    gone = "matplotlib scipy sklearn onnx pyarrow"
    ended = run_without(tmp_path, gone, "vit_ls.visualize", "--help")
    assert ended.returncode == 0, ended.stderr
