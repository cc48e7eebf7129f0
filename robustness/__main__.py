"""Runs the suite: `python -m robustness`."""

import sys

from robustness.cli import main

sys.exit(main())
