"""Time and memory of our models beside others, measured in turn: `python -m benchmarks.speed`."""
