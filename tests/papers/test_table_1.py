import functools
import warnings

import pytest
import torch

from vit_ls.count import count_flops_of
from vit_ls.paper import LONG_SHORT_TABLE_1
from vit_ls.sequence import Full, LongShort, SequenceEncoder

PRINTED = {row.system: row for row in LONG_SHORT_TABLE_1}
CELLS = [
    *(("full", task, Full()) for task in ("listops", "text", "retrieval")),
    *(("w,r = 8,32", task, LongShort(8, 32)) for task in ("listops", "text", "retrieval")),
    ("best", "listops", LongShort(16, 2)),
    ("best", "text", LongShort(1, 1)),
    ("best", "retrieval", LongShort(1, 254)),
    ("projection, best", "listops", LongShort(0, 4)),
    ("projection, best", "text", LongShort(0, 128)),
    ("projection, best", "retrieval", LongShort(0, 256)),
]


@functools.cache
def flops(attention, length):
    encoder = SequenceEncoder(
        vocab_size=16,
        dim=64,
        depth=2,
        num_heads=2,
        hidden=128,
        max_length=length,
        attention=attention,
        pooling="mean",
        pad_id=None,
    ).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing says where sizes become constants
        return count_flops_of(encoder, torch.ones(1, length, dtype=torch.long))


@pytest.mark.parametrize(
    ("system", "task", "attention"),
    # full attention over 4096 tokens takes seconds
    [c if c[1] == "listops" else pytest.param(*c, marks=pytest.mark.landing) for c in CELLS],
)
def test_flops_are_those_of_table_1(system, task, attention):
    length, sequences = (2048, 1) if task == "listops" else (4096, 1 + (task == "retrieval"))
    # the projection at rank 128 counts 0.683 where 0.69 is printed, see the next test; all others
    # round to the digit
    off = 0.0071 if (system, task) == ("projection, best", "text") else 0.0051
    actual = sequences * flops(attention, length) / 1e9
    assert actual == pytest.approx(getattr(PRINTED[system], task), abs=off)


def test_no_way_of_counting_gives_both_cells_of_the_projection_alone():
    # rank 256 at two sequences less rank 128 at one, as far apart as the printed digits allow
    most = (2.17 + 0.005) / 2 - (0.69 - 0.005)
    # logits, P^T k and P^T v, scores and their sum of values: 6 C for each token, layer and vector
    products = 4096 * 2 * 128 * 6 * 64 / 1e9
    assert products > most
    counted = flops(LongShort(0, 256), 4096) - flops(LongShort(0, 128), 4096)
    # what else is counted only adds to it: LN_G of the vectors, twice
    assert counted / 1e9 == pytest.approx(products + 2 * 2 * 128 * 5 * 64 / 1e9)
