# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Robustness of a checkpoint, with its report
#
# A model of the digits under the corruptions of ImageNet-C. With ImageNet's folders under a root,
# `suites=["imagenet-c", "imagenet-a"]` and `data_root=` do the same. Start it in the checkout;
# minutes on a CPU.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from IPython.display import Image, Markdown
from torchvision.transforms import Compose, Normalize, ToTensor

import vit_ls
from robustness import evaluate
from robustness.rules.metrics import metrics

WORK = Path(tempfile.mkdtemp())
command = [
    sys.executable, "train.py", "--model", "test_cvt_ls", "--epochs", "3", "--warmup-epochs", "1",
    "--output", str(WORK), "--experiment", "run",
]  # fmt: skip
done = subprocess.run(command, check=False, capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-2000:]
checkpoint = WORK / "run" / "model_best.pth.tar"

# %% [markdown]
# Any module and any transform: here the checkpoint, read without running code that a file may hold.

# %%
model = vit_ls.load(checkpoint)
config = model.run.data_config
transform = Compose([ToTensor(), Normalize(config["mean"], config["std"])])
report = evaluate(
    model, transform, suites=["digits"], name="digits model", max_images=60, output=WORK / "report"
)
{number.name: (number.value, number.low, number.high) for number in metrics(report)}

# %% [markdown]
# The report is a folder: JSON, CSV, Markdown, a page and pictures.

# %%
sorted(path.name for path in (WORK / "report").iterdir())

# %%
Markdown((WORK / "report" / "report.md").read_text())

# %%
Image(str(next((WORK / "report").glob("*.png"))))
