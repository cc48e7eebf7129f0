"""Images per second of a model with fused attention and with explicit scores, side by side.

    python benchmarks/speed.py --model vil_ls_medium

The two take turns, and the best of `--repeats` counts, so that other load on the machine hits both.
"""

import argparse
import sys
import time
from collections.abc import Callable

import timm
import torch
from timm.data import resolve_model_data_config
from timm.layers import set_fused_attn

import vit_ls  # noqa: F401  registers the models


def main() -> None:
    """Write one line for inference and one for a training step."""
    parser = argparse.ArgumentParser(description="Fused against explicit attention.")
    parser.add_argument("--model", default="vil_ls_medium")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--img-size", type=int, default=None, help="default: the model's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    model = timm.create_model(args.model).to(args.device)
    size = args.img_size or resolve_model_data_config(model)["input_size"][-1]
    images = torch.randn(args.batch_size, 3, size, size, device=args.device)

    def infer() -> None:
        with torch.inference_mode():
            model(images)

    def train() -> None:
        model(images).mean().backward()

    for name, step, mode in (("inference", infer, False), ("training step", train, True)):
        model.train(mode)
        fused, explicit = _best_seconds(step, args.repeats)
        rates = f"{args.batch_size / fused:.2f} fused, {args.batch_size / explicit:.2f} explicit"
        sys.stdout.write(f"{args.model} {size} {args.device} {name}, images/s: {rates}\n")


def _best_seconds(step: Callable[[], None], repeats: int) -> tuple[float, float]:
    best = {True: float("inf"), False: float("inf")}
    try:
        for _ in range(repeats + 1):  # the first round warms up
            for fused in best:
                set_fused_attn(fused)
                best[fused] = min(best[fused], _seconds(step))
    finally:
        set_fused_attn(True)
    return best[True], best[False]


def _seconds(step: Callable[[], None]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
