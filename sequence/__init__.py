"""The papers' sequence tasks: `python -m sequence --task listops`. Never installed."""
