"""docs/evidence/private_names.md lists the private names of other packages that the code uses."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "private_names.md"

_spec = importlib.util.spec_from_file_location("private", ROOT / ".ci" / "private_names.py")
private = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(private)


def test_the_page_lists_what_the_code_uses_and_where() -> None:
    listed = {}
    for row in re.findall(r"^\| `(.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        name, places, *_ = row.split(" | ")
        listed[name.strip("`")] = re.findall(r"`([^`]+)`", places)
    assert listed == private.used()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch\ntorch._C._jit()", ["torch._C._jit"]),
        ("from timm.models._features import x\nx()", ["timm.models._features.x"]),
        ("import torch as t\nt.nn._x", ["torch.nn._x"]),
        ("import torch\ntorch.nn.Linear", []),
        ("import numpy\nnumpy._x", []),
    ],
)
def test_a_private_name_is_seen_however_it_is_imported(code: str, found: list[str]) -> None:
    assert sorted(set(private.private_names(ast.parse(code))) - {"torch._C"}) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [("reader._lazy()", ["_lazy"]), ("self._own()", []), ("row._replace(a=1)", [])],
)
def test_a_private_member_of_another_object_is_seen(code: str, found: list[str]) -> None:
    assert list(private.private_members(ast.parse(code))) == found
