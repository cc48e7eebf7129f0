"""ImageNet's robustness benchmarks for any timm model: official rules, integer counts.

Run from a checkout: `python -m robustness --help`. The files, from the question to the answer:
benchmarks (the table), trees and sources (folders and images), protocols (transforms), subject (the
model), run and evaluate (the loop), rules (counts), cache, metrics (numbers), report and plots.
"""
