"""The papers' sequence tasks: `python -m papers.sequence --task listops`. Never installed."""
