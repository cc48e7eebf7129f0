"""An estimate in words."""

from vit_ls.estimate.cost import Estimate
from vit_ls.estimate.memory import Memory
from vit_ls.style import markdown_table
from vit_ls.train.utilisation import PEAKS

CAPACITIES = (24, 40, 80, 141)
"""Of GPUs, in GB."""

USABLE = 0.9
"""Share of it that a batch may take: the rest is the driver's, the libraries' and lost in gaps."""

SHARES = (0.30, 0.45)
"""Of a GPU's peak that trainings reach: an unhurried one, and a good one."""

COMMON = "NVIDIA A100-SXM4-80GB"
"""Whose hours stand in the headline."""


def headline(it: Estimate) -> str:
    """The estimate in one line."""
    parts = [f"{it.params[0] / 1e6:.1f} M parameters"]
    if not isinstance(it.flops, str):
        parts.append(f"{_short(it.flops / 1e9, 2)} GFLOPs")
    parts.append(f"{it.updates:,} updates")
    if not isinstance(it.memory, str):
        parts.append(f"{_short(it.memory.total / 1e9, 1)} GB a GPU")
    if it.no_hours is None:
        slow, fast = (it.hours(COMMON, share) for share in SHARES)
        span = " to ".join(dict.fromkeys([_hours(fast), _hours(slow)]))
        share = f"{SHARES[1]:.0%} to {SHARES[0]:.0%}"
        parts.append(f"{span} hours at {share} of the peak of {it.gpus} x {COMMON}")
    return "Estimate: " + ", ".join(parts) + "."


def report(it: Estimate) -> str:
    """The whole estimate, as text for a terminal or a page."""
    config = it.config
    wide = max(map(len, (name for name, _ in _facts(it))))
    lines = [
        f"{config.model} at {it.size[1]} x {it.size[2]}, {it.gpus} x GPU. This is an estimate: "
        "nothing was run.",
        "",
        *(f"{name:{wide}}  {said}" for name, said in _facts(it)),
        "",
    ]
    if it.no_hours is not None:
        lines.append(f"Hours are not said: {it.no_hours}.")
    else:
        head = [
            "GPU",
            *(f"{what} at {share:.0%}" for what in ("hours", "images/s") for share in SHARES),
        ]
        rows = [
            [
                name,
                *(_hours(it.hours(name, share)) for share in SHARES),
                *(f"{it.images_per_second(name, share):,.0f}" for share in SHARES),
            ]
            for name in PEAKS
        ]
        lines += [
            f"Training alone on {it.gpus} of them, at a share of their peak (MFU), and what the",
            "loaders of all processes must deliver. Small models reach a smaller share.",
            "",
            markdown_table(head, rows, numbers=range(1, len(head))),
        ]
    return "\n".join([*lines, "", headline(it)]) + "\n"


def _facts(it: Estimate) -> list[tuple[str, str]]:
    config, rates = it.config, it.rates
    total, trained = it.params
    images = "as many as the stream gives" if it.images is None else f"{it.images:,}"
    if it.assumed:
        images += " (assumed: ImageNet-1K's, since no data is named)"
    accumulated = f" x {config.grad_accum_steps} batches" if config.grad_accum_steps > 1 else ""
    end = "as the evaluations decide" if rates.end is None else f"{rates.end:.3g}"
    return [
        ("parameters", f"{total:,}" + (f", {trained:,} trained" if trained != total else "")),
        ("FLOPs", it.flops if isinstance(it.flops, str) else _flops(it.flops)),
        ("training images", images),
        ("batch", f"{config.batch_size}{accumulated} x {it.gpus} GPU = {it.images_per_update:,}"),
        ("updates", f"{it.updates:,} in {it.epochs} epochs"),
        (
            "learning rate",
            f"{rates.start:.3g} at the start, {rates.peak:.3g} at most, {end} at the end",
        ),
        *(
            _memory(it.memory, even=config.mixes)
            if isinstance(it.memory, Memory)
            else [("memory", it.memory)]
        ),
    ]


def _flops(forward: int) -> str:
    return f"{_short(forward / 1e9, 2)} G for an image's forward pass, a multiply-add once"


def _memory(memory: Memory, *, even: bool) -> list[tuple[str, str]]:
    most = (
        f"{memory.largest_batch(USABLE * capacity * 1e9, even=even):,} in {capacity} GB"
        for capacity in CAPACITIES
    )
    return [
        (
            "memory of a GPU",
            f"{memory.state / 1e9:.2f} GB of weights, gradients, optimiser and average + "
            f"{memory.activations / 1e9:.2f} GB of activations = {memory.total / 1e9:.2f} GB",
        ),
        ("one image more", f"{memory.per_image / 1e6:.1f} MB"),
        ("largest batch", f"{', '.join(most)} ({USABLE:.0%} of it used)"),
    ]


def _hours(hours: float) -> str:
    if hours < 0.05:
        return "< 0.1"
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"


def _short(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value >= 1 else f"{value:.2g}"
