"""`python -m sequence`."""

import sys

from sequence.cli import main
from vit_ls import engine

if __name__ == "__main__":
    sys.exit(engine.command_line("python -m sequence", main))
