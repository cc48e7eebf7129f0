"""Every switch of PyTorch for the precision of float32 products, old and new, each alone."""

import json
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.landing

NEW = hasattr(torch.backends, "fp32_precision")
needs_new = pytest.mark.skipif(not NEW, reason="PyTorch has these switches from 2.9")

OLD_SWITCHES = {
    "pass": ("ieee", "ieee"),
    "torch.set_float32_matmul_precision('highest')": ("ieee", "ieee"),
    "torch.set_float32_matmul_precision('high')": ("tf32", "tf32"),
    "torch.set_float32_matmul_precision('medium')": ("bf16", "tf32"),
    "torch.backends.cuda.matmul.allow_tf32 = True": ("ieee", "tf32"),
    "torch.backends.cudnn.allow_tf32 = False": ("ieee", "ieee"),
}
"""The statement, and what products on a CPU and on a GPU are then computed in."""

NEW_SWITCHES = {
    "torch.backends.fp32_precision = 'tf32'": ("tf32", "tf32"),
    "torch.backends.fp32_precision = 'bf16'": ("bf16", "ieee"),
    "torch.backends.fp32_precision = 'ieee'": ("ieee", "ieee"),
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": ("ieee", "tf32"),
    "torch.backends.cuda.matmul.fp32_precision = 'ieee'": ("ieee", "ieee"),
    "torch.backends.cudnn.conv.fp32_precision = 'tf32'": ("ieee", "ieee"),
    "torch.backends.cudnn.rnn.fp32_precision = 'tf32'": ("ieee", "ieee"),
    "torch.backends.mkldnn.matmul.fp32_precision = 'tf32'": ("tf32", "ieee"),
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'": ("bf16", "ieee"),
    "torch.backends.mkldnn.conv.fp32_precision = 'tf32'": ("ieee", "ieee"),
    "torch.backends.mkldnn.rnn.fp32_precision = 'tf32'": ("ieee", "ieee"),
    # those of a whole backend set what all backends have in common
    "torch.backends.mkldnn.fp32_precision = 'bf16'": ("bf16", "ieee"),
    "torch.backends.cudnn.fp32_precision = 'tf32'": None,
}

SWITCHES = [
    *OLD_SWITCHES,
    *(pytest.param(switch, marks=needs_new) for switch in NEW_SWITCHES),
]

# One process takes all switches in turn; after each, all that PyTorch tells is as at the start.
CODE = """
import json, sys, traceback, warnings
warnings.simplefilter("ignore")
import timm, torch, vit_ls
from vit_ls.config import DataConfig
from vit_ls.blocks import fuse
from vit_ls.job.precision import set_precision
from vit_ls.ops import precision_of_products
from vit_ls.ops.impl.triton import tiles
from vit_ls.sequence import (
    CausalCompositeSlice, CausalCompositeSliceAttention1d, CausalLongShort,
    CausalLongShortAttention, CompositeSlice, CompositeSliceAttention1d, FullAttention1d,
    LongShort, LongShortAttention1d,
)

def forwards():
    row = torch.randn(1, 9, 16)
    for layer in (
        FullAttention1d(16, 2),
        LongShortAttention1d(16, 2, LongShort(4, 2)),
        CompositeSliceAttention1d(16, 2, CompositeSlice(3, pos_embed="absolute")),
        CausalLongShortAttention(16, 2, CausalLongShort(4, 4, 2)),
        CausalCompositeSliceAttention1d(16, 2, CausalCompositeSlice(3)),
    ):
        layer(row)
    for name in ("test_vil_ls", "test_cvt_ls", "test_cst_vil"):
        model, x = timm.create_model(name).eval(), torch.randn(1, 3, 32, 32)
        model(x).sum().backward()
        with torch.no_grad():
            model(x)
            fuse(model)(x)

def run(switch):
    exec(switch)
    found = precision_of_products("cpu"), precision_of_products("cuda")
    assert tiles.precision() == ("ieee" if found[1] == "ieee" else "tf32")
    forwards()
    gpu = torch.device("cuda")
    set_precision(DataConfig(), gpu)
    assert precision_of_products("cuda") == "tf32"
    set_precision(DataConfig(float32_matmul_precision="highest"), gpu)
    assert (precision_of_products("cpu"), precision_of_products("cuda")) == ("ieee", "ieee")
    if hasattr(torch.backends, "fp32_precision"):
        conv = torch.backends.cudnn.conv.fp32_precision, torch.backends.mkldnn.conv.fp32_precision
        assert not {*conv} & {"tf32", "bf16"}, conv
    forwards()
    return found

def parts():
    b = torch.backends
    yield from (b, b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn)
    yield from (b.mkldnn, b.mkldnn.matmul, b.mkldnn.conv, b.mkldnn.rnn)

def told():
    new = [part.fp32_precision for part in parts()] if NEW else []
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return new, torch.get_float32_matmul_precision(), tf32

def put_back():
    # the new switches, what the old ones remember, and what those have changed of the new ones
    put_new()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    put_new()

def put_new():
    for part, value in zip(parts() if NEW else (), START[0]):
        if part.fp32_precision != value:
            part.fp32_precision = value

NEW = hasattr(torch.backends, "fp32_precision")
START = told()
for switch in json.loads(sys.argv[1]):
    try:
        said = run(switch)
    except BaseException:
        said = traceback.format_exc()[-1500:]
    put_back()
    if told() != START:
        said = f"the switches were {START}, are {told()}"
    print(json.dumps([switch, said]), flush=True)
"""


@pytest.fixture(scope="module")
def said():
    switches = [*OLD_SWITCHES, *(NEW_SWITCHES if NEW else ())]
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(switches)],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_attention_and_the_engine_run_under_each_switch_and_know_what_it_says(switch, said):
    found, wanted = said[switch], (OLD_SWITCHES | NEW_SWITCHES)[switch]
    assert isinstance(found, list), found
    assert wanted is None or tuple(found) == wanted
