"""ImageNet's robustness benchmarks for any timm model: official rules, integer counts.

Run from a checkout: `python -m robustness --help`. The folders, from the question to the answer:
data (benchmarks, layouts, images), corruptions, rules (transforms, judging, numbers), running (the
model, the plan, the loop, the cache) and reporting. The files beside them are the commands.
"""
