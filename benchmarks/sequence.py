"""Cost of the sequence forms by length, in turn with full attention, and of generating by place.

    python -m benchmarks.sequence --threads 2

One block of the ListOps encoder of arXiv:2107.02192 (dim 64, 2 heads, MLP 128) for each attention,
float32, a batch of one: the forward pass, the training step (forward and backward), the activations
that this keeps, and the FLOPs of the forward pass. The systems take turns, A B C A B C, and the
least of the rounds counts, so that other work on the machine disturbs all alike. Full attention is
PyTorch's fused kernel. Then the time of one token after t others, of a language model of two such
blocks, by its state: the median of 40.

What the CSV file holds is not measured again, so that a measurement can be made in parts; a file of
another machine, torch or way of measuring is refused. `docs/evidence/sequences.md` explains the
table that is written at the end, `--plot` draws it. Minutes on a CPU.

`--cpu-time` counts the time that the processor spends on it instead of the time that passes: with
one thread the two are the same on a machine that does nothing else, and on a busy one only the
first means anything.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.sequence_report import FULL, Costs, write_tables
from benchmarks.speed.measure import in_turn
from vit_ls.count import count_flops_of, saved_activations
from vit_ls.job.machine import machine
from vit_ls.sequence import (
    CausalCompositeSlice,
    CausalLongShort,
    CompositeSlice,
    Full,
    LanguageModel,
    LongShort,
    SequenceEncoder,
)
from vit_ls.sequence.specs import Attention, CausalAttention

SYSTEMS: dict[str, Attention] = {
    FULL: Full(),
    "LS 16,2": LongShort(16, 2),
    "CST 32": CompositeSlice(32),
    # so small a slice that attention among slices is most of the work at the longest lengths
    "CST 8": CompositeSlice(8),
}
GENERATORS: dict[str, CausalAttention] = {
    "causal LS 32,16,1": CausalLongShort(32, 16, 1),
    "window 32 alone": CausalLongShort(32, 16, 0),
    "causal CST 32": CausalCompositeSlice(32),
}
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PLACES = (256, 1024, 4096, 16384)
_TOKENS = 40
"""Generated at each place, of which the median counts."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what the file lacks, and write tables, perhaps a plot."""
    parser = argparse.ArgumentParser("benchmarks.sequence", description="Sequence forms by length.")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="N")
    parser.add_argument("--places", type=int, nargs="*", default=PLACES, help="t of generation")
    parser.add_argument("--rounds", type=int, default=25, help="of which the least time counts")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--cpu-time", action="store_true", help="of this process, not of the clock")
    parser.add_argument("--fit-from", type=int, default=2048, help="least length of the exponents")
    parser.add_argument("--csv", type=Path, help="the file of the rows, read first and added to")
    parser.add_argument("--plot", type=Path, help="file to write a plot to")
    args = parser.parse_args(argv)
    if min(*args.lengths, *args.places, args.rounds, args.threads) < 1:
        parser.error("lengths, places, rounds and threads must be positive.")
    torch.set_num_threads(args.threads)
    way = [
        *machine("cpu")[:2],
        ("# threads", str(args.threads)),
        ("# clock", "processor" if args.cpu_time else "wall"),
    ]
    costs: Costs = {}
    if args.csv and args.csv.is_file():
        costs = _read(args.csv, way, parser)
    for found in _measured(costs, args.lengths, args.places, args.rounds, args.cpu_time):
        costs |= found
        if args.csv:
            _write(args.csv, way, costs)
    write_tables(costs, args.fit_from)
    if args.plot:
        from benchmarks.sequence_report import plot

        plot(costs, args.plot)


def _measured(
    costs: Costs,
    lengths: Sequence[int],
    places: Sequence[int],
    rounds: int,
    processor: bool,
) -> Iterator[Costs]:
    """What is missing, length by length and place by place."""
    for length in sorted(lengths):
        if any((system, length, "step_ms") not in costs for system in SYSTEMS):
            yield measure(length, rounds, processor=processor)
    for place in sorted(places):
        if any((system, place, "token_ms") not in costs for system in GENERATORS):
            yield {
                (name, place, "token_ms"): _token_ms(attention, place, processor)
                for name, attention in GENERATORS.items()
            }


def measure(length: int, rounds: int, *, processor: bool = False) -> Costs:
    """All that is said of the systems at one length."""
    ids = torch.ones(1, length, dtype=torch.long)
    models = {name: _model(attention, length) for name, attention in SYSTEMS.items()}
    costs: Costs = {}
    for what, run in (("forward_ms", _forward), ("step_ms", _step)):
        runs = {name: partial(run, model, ids) for name, model in models.items()}
        for name, times in in_turn(runs, rounds, "cpu", processor=processor).items():
            costs[name, length, what] = round(1e3 * times.least, 3)
    for name, model in models.items():
        costs[name, length, "saved_mb"] = round(saved_activations(model, ids) / 1e6, 3)
        costs[name, length, "gflops"] = round(count_flops_of(model, ids) / 1e9, 5)
    return costs


@torch.no_grad()
def _token_ms(attention: CausalAttention, place: int, processor: bool) -> float:
    """Milliseconds of one token after `place` others."""
    torch.manual_seed(0)
    sliced = isinstance(attention, CausalCompositeSlice)
    model = LanguageModel(
        vocab_size=256,
        dim=64,
        depth=2,
        num_heads=2,
        hidden=128,
        attention=attention,
        max_length=place + _TOKENS + 1 if sliced else None,
    ).eval()
    token = torch.ones(1, 1, dtype=torch.long)
    states = model.advance(token.expand(1, place))[1]

    def advance() -> None:
        nonlocal states
        states = model.advance(token, states)[1]

    times = in_turn({"token": advance}, _TOKENS, "cpu", processor=processor)["token"]
    return round(1e3 * times.median, 3)


def _model(attention: Attention, length: int) -> SequenceEncoder:
    torch.manual_seed(0)
    return SequenceEncoder(
        vocab_size=16,
        dim=64,
        depth=1,
        num_heads=2,
        hidden=128,
        max_length=length,
        attention=attention,
        pooling="mean",
        pad_id=None,
    )


def _forward(model: SequenceEncoder, ids: Tensor) -> None:
    with torch.no_grad():
        model(ids)


def _step(model: SequenceEncoder, ids: Tensor) -> None:
    model(ids).sum().backward()


def _read(path: Path, way: list[tuple[str, str]], parser: argparse.ArgumentParser) -> Costs:
    with path.open(newline="") as file:
        rows = [tuple(row) for row in csv.reader(file)]
    head = rows[: len(way)]
    if head != way:
        parser.error(f"{path} must have been measured as now, {way}, got {head}.")
    return {(r[0], int(r[1]), r[2]): float(r[3]) for r in rows[len(way) + 1 :]}


def _write(path: Path, way: list[tuple[str, str]], costs: Costs) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([*way, ("system", "tokens", "measure", "value")])
        writer.writerows((*key, value) for key, value in costs.items())


if __name__ == "__main__":
    main()
