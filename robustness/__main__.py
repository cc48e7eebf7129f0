"""Runs the suite: `python -m robustness`."""

import os
import sys

try:
    from robustness.cli import main
except ModuleNotFoundError as error:
    if error.name not in ("matplotlib", "scipy"):
        raise
    sys.stderr.write(f"{error.name} is needed: pip install -e '.[robustness]'\n")
    sys.exit(2)

status = main()
if "WORLD_SIZE" in os.environ:
    # Once one process has left with a failure, torchrun ends those that still tear down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
sys.exit(status)
