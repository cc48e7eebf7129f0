"""How heavy the code is: the targets that `.ci/house.py` prints, and no step back elsewhere."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "house", Path(__file__).parents[1] / ".ci" / "house.py"
)
house = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(house)

NOT_YET = {
    # what the package can do takes about 28,000 lines of code, docstrings and blank lines beside
    "lines beside the tests": 41_300,
    # each block asks its norms, its residuals and its windows for what a grid lets them do
    "Python calls in them": 1_234,
}
"""Targets that are missed, and what must not grow meanwhile."""


@pytest.mark.parametrize("row", house.measured(), ids=lambda row: row.what)
def test_the_code_is_no_heavier_than_its_target(row: house.Row) -> None:
    assert row.found <= NOT_YET.get(row.what, row.at_most), row.names
    assert row.what not in NOT_YET or row.found > row.at_most, f"reached: take {row.what!r} out"
