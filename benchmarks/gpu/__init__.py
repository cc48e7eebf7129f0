"""All that is to be measured once a GPU is at hand: `python -m benchmarks.gpu`."""
