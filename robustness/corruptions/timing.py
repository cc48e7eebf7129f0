"""Time of each corruption: `python -m robustness.corruptions.timing [--size 224] [--images 5]`.

Prints the mean over the five severities of the best time for one image, one thread.
"""

import argparse
import sys
import time

import numpy as np
from PIL import Image

from robustness.corruptions import CORRUPTIONS, SEVERITIES, corrupt, random_state


def milliseconds(image: Image.Image, name: str, repeats: int) -> float:
    """Mean over severities of the least of `repeats` times."""
    best = []
    for severity in SEVERITIES:
        times = []
        for repeat in range(repeats):
            rng = random_state(str(repeat), name, severity)
            began = time.perf_counter()
            corrupt(image, name, severity, rng)
            times.append(time.perf_counter() - began)
        best.append(min(times))
    return 1000 * sum(best) / len(best)


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
