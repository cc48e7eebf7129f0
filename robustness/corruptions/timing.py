"""Time of each corruption: `python -m robustness.corruptions.timing [--size 224] [--images 5]`.

Prints the mean over the five severities of the best time for one image, one thread.
"""

import argparse
import sys
import timeit
from functools import partial
from statistics import fmean

import numpy as np
from PIL import Image

from robustness.corruptions import CORRUPTIONS, SEVERITIES, corrupt, random_state


def milliseconds(image: Image.Image, name: str, repeats: int) -> float:
    """Mean over severities of the least of `repeats` times."""
    best = []
    for severity in SEVERITIES:
        once = partial(_once, image, name, severity)
        best.append(min(timeit.repeat(once, number=1, repeat=repeats)))
    return 1000 * fmean(best)


def _once(image: Image.Image, name: str, severity: int) -> None:
    corrupt(image, name, severity, random_state("", name, severity))


def main() -> None:
    """Time all corruptions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224, help="side of the image")
    parser.add_argument("--images", type=int, default=5, help="times that each is run")
    args = parser.parse_args()
    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((args.size, args.size), Image.Resampling.BICUBIC)
    for name in CORRUPTIONS:
        sys.stdout.write(f"{name:18} {milliseconds(image, name, args.images):7.2f} ms\n")


if __name__ == "__main__":
    main()
