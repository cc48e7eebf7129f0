"""Evaluate a model on ImageNet-C, A, R, 9 and others: `python -m robustness`."""

import os
import sys

from robustness.cli import main

status = main()
if "WORLD_SIZE" in os.environ:
    # Once one process has left with a failure, torchrun ends those that still tear down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
sys.exit(status)
