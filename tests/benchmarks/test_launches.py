import pytest
import torch
from torch import nn

from benchmarks.launches import launches, launches_of, main
from benchmarks.speed.subjects import SUBJECTS, Subject

MOST = {
    # model: attention in its parts, in one kernel under autocast
    "vil_ls_medium": (753, 856),
    "cvt_ls_21": (1090, 1645),
    "cst_vit_small_patch16": (400, 456),
}
"""What was reached. Fewer are welcome: lower the number."""


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x).unflatten(-1, (2, 2)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(x, x, x)


def test_views_are_no_kernels_and_casts_are():
    with torch.device("meta"):
        fused, parts = (launches_of(_Small(), (2, 3, 4), how) for how in ("fused", "parts"))
    assert {one.op: n for one, n in fused.items() if n} == {
        "_to_copy": 3,  # of inputs, weight and bias
        "addmm": 1,
        "_scaled_dot_product_efficient_attention": 1,
    }
    assert {one.module for one in fused} == {"layer", ""}
    assert sum(n for one, n in parts.items() if one.op == "bmm") == 2


@pytest.mark.landing
def test_each_operator_and_each_module_has_a_row(capsys, monkeypatch):
    monkeypatch.setitem(SUBJECTS, "cvt_ls_13", Subject("test_cvt_ls"))
    main(["--models", "cvt_ls_13", "--size", "32", "--by", "module"])
    said = capsys.readouterr().out
    assert "| stages.*.blocks.*.attn.proj | " in said
    total = launches(SUBJECTS["cvt_ls_13"], "parts", 32).total()
    rows = [line.split("|") for line in said.splitlines()[2:]]
    assert sum(int(row[2]) for row in rows) == total


@pytest.mark.landing
@pytest.mark.parametrize("name", MOST)
def test_a_forward_launches_no_more_kernels_than_it_did(name):
    found = tuple(launches(SUBJECTS[name], how).total() for how in ("parts", "fused"))
    assert all(n <= most for n, most in zip(found, MOST[name], strict=True)), found
