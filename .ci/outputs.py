"""What the code computes, as digests of the bytes: a refactor must not change one of them.

    python .ci/outputs.py > before.json            # in the one checkout
    python .ci/outputs.py --against before.json    # in the other: names what differs, status 1

Logits, feature maps and gradients of every family and kind of attention, in three precisions and at
two sizes; the sequence forms; and a run on the digits with its evaluation and robustness counts.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import timm
import torch
from torch import Tensor, nn

from vit_ls import sequence

ROOT = Path(__file__).parents[1]
MODELS: list[tuple[str, dict[str, object]]] = [
    ("test_vil_ls", {}),
    ("test_vil_ls", {"attention": "long_short"}),
    ("test_vil_ls", {"rank": 0, "dual_ln": False}),
    ("test_vil_ls", {"window": 0}),
    ("test_cvt_ls", {}),
    ("test_cvt_ls", {"attention": "full"}),
    ("test_cvt", {}),
    ("test_vil", {}),
    ("test_vil", {"position": "absolute"}),
    ("test_cst_vit", {}),
    ("test_cst_vit", {"composition": "parallel", "alpha": 2.0}),
    ("test_cst_vit", {"composition": "slices_first", "aggregation": "linear"}),
    ("test_cst_vit", {"local_mixer": "mlp", "pos_embed": "absolute"}),
    ("test_cst_vil", {"aggregation": "max", "shared_qkv": False}),
]
SIZES = ((32, 32), (45, 70))


def digest(*tensors: Tensor | None) -> str:
    """Of the bytes of tensors, in their order."""
    found = hashlib.sha256()
    for one in tensors:
        if one is not None:
            found.update(one.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def gradients(model: nn.Module) -> list[Tensor | None]:
    """Of the parameters by their names, so that an order of modules is no difference."""
    return [parameter.grad for _, parameter in sorted(model.named_parameters())]


def of_models() -> Iterator[tuple[str, str]]:
    """Each model in inference and in training."""
    for name, kwargs in MODELS:
        torch.manual_seed(0)
        model = timm.create_model(name, num_classes=7, **kwargs)
        for size in SIZES:
            images = torch.randn(2, 3, *size)
            for precision in ("float32", "bfloat16 autocast", "float64"):
                where = f"{name} {kwargs} {size} {precision}"
                yield from _passes(where, model, images, precision)


def _passes(
    where: str, model: nn.Module, images: Tensor, precision: str
) -> Iterator[tuple[str, str]]:
    dtype = torch.float64 if precision == "float64" else torch.float32
    mixed = torch.autocast("cpu", torch.bfloat16) if "bfloat16" in precision else nullcontext()
    model, images = model.to(dtype), images.to(dtype)
    with mixed, torch.inference_mode():
        final, maps = model.eval().forward_intermediates(images)
        yield f"{where} inference", digest(model(images), final, *maps)
    model.train().zero_grad()
    with mixed:
        logits = model(images)
    logits.float().square().sum().backward()
    yield f"{where} training", digest(logits, *gradients(model))
    model.to(torch.float32)


def of_sequences() -> Iterator[tuple[str, str]]:
    """Each sequence attention, in an encoder or a language model."""
    common = {"vocab_size": 19, "dim": 24, "depth": 2, "num_heads": 3, "hidden": 48}
    ids = torch.randint(1, 19, (2, 45), generator=torch.Generator().manual_seed(1))
    ids[1, 30:] = 0  # padding
    for attention in (
        sequence.Full(),
        sequence.LongShort(window=8, rank=4),
        sequence.LongShort(window=0, rank=4),
        sequence.CompositeSlice(slice_size=8),
        sequence.CompositeSlice(slice_size=8, alpha=2.0, composition="parallel"),
    ):
        torch.manual_seed(0)
        pooling = "mean" if isinstance(attention, sequence.CompositeSlice) else "cls"
        encoder = sequence.SequenceEncoder(
            **common, max_length=64, attention=attention, pooling=pooling
        )
        model = sequence.SequenceClassifier(encoder, hidden=16, num_classes=5)
        yield from _trained(f"classifier {attention}", model, ids)
    for attention, length in (
        (sequence.CausalLongShort(window=8, segment=8, rank=2), None),
        (sequence.CausalCompositeSlice(slice_size=8), 64),
    ):
        torch.manual_seed(0)
        language = sequence.LanguageModel(**common, attention=attention, max_length=length)
        yield from _trained(f"language model {attention}", language, ids)


def _trained(where: str, model: nn.Module, ids: Tensor) -> Iterator[tuple[str, str]]:
    found = model.train()(ids)
    logits = found[0] if isinstance(found, tuple) else found
    logits.square().sum().backward()
    yield where, digest(logits, *gradients(model))


def of_programs() -> Iterator[tuple[str, str]]:
    """A run of two epochs on the digits, and what the evaluations say of its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        run, report = Path(folder, "run"), Path(folder, "report")
        checkpoint = str(run / "model_best.pth.tar")
        _run("train.py", "--epochs", "2", "--model-ema", "--output", folder, "--experiment", "run")
        yield "summary.csv", hashlib.sha256((run / "summary.csv").read_bytes()).hexdigest()[:16]
        said = _run("validate.py", "--model", "test_vil_ls", "--checkpoint", checkpoint)
        words = dict(word.split("=", 1) for word in said.split() if "=" in word)
        yield "validate.py", f"{words['val_top1']} {words['val_loss']}"
        _run(
            *("-m", "robustness", "--model", "test_vil_ls", "--checkpoint", checkpoint),
            *("--suites", "digits", "--max-images", "20", "--output", str(report)),
        )
        with (report / "report.csv").open() as file:
            rows = sorted(",".join(row) for row in csv.reader(file))
        yield "robustness", hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def _run(*argv: str) -> str:
    found = subprocess.run(
        [sys.executable, *argv],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    if found.returncode:
        sys.exit(f"{' '.join(argv)} ended with {found.returncode}: {found.stderr[-500:]}")
    return found.stdout


def main() -> None:
    """Print the digests, or compare them with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="what this command printed elsewhere")
    against = parser.parse_args().against
    torch.set_num_threads(1)
    found = {**dict(of_models()), **dict(of_sequences()), **dict(of_programs())}
    if against is None:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    before = json.loads(against.read_text())
    other = [name for name in before.keys() | found.keys() if before.get(name) != found.get(name)]
    sys.exit("\n".join(["different:", *sorted(other)]) if other else 0)


if __name__ == "__main__":
    main()
