"""Evaluate a model on ImageNet-C, A, R, 9 and others: `python -m robustness`."""

import os
import sys

from robustness.errors import ending


def _run() -> int:
    # Imported here, so that Ctrl-C is answered alike in the seconds that it takes.
    from robustness.cli import main

    return main()


if __name__ == "__main__":
    status = ending(_run, speaks=os.environ.get("RANK", "0") == "0")
    if "WORLD_SIZE" in os.environ:
        # Once one process has left with a failure, torchrun ends those that still tear down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
