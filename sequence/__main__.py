"""Train and evaluate on the papers' sequence tasks: `python -m sequence`."""

from sequence.cli import main
from vit_ls import engine

if __name__ == "__main__":
    engine.end_process(engine.command_line("python -m sequence", main))
