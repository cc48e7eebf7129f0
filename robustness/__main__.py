"""Runs the suite: `python -m robustness`."""

import sys

try:
    from robustness.cli import main
except ModuleNotFoundError as error:
    if error.name not in ("matplotlib", "scipy"):
        raise
    sys.stderr.write(f"{error.name} is needed: pip install -e '.[robustness]'\n")
    sys.exit(2)

sys.exit(main())
