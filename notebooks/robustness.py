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
# `suites=["imagenet-c", "imagenet-a"]` and `data_root=` do the same. Minutes on a CPU.

# %% [markdown]
# Install the checkout once. Then the notebook runs from any folder.

# %% tags=["skip-execution"]
CHECKOUT = ".."  # the path of your checkout
# %pip install -q -e "{CHECKOUT}[demo,robustness]"

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from IPython.display import Image
from torchvision.transforms import Compose, Normalize, ToTensor

import vit_ls

ROOT = Path(vit_ls.__file__).parents[1]  # of the checkout, which has the suite
sys.path.insert(0, str(ROOT))
from robustness import evaluate
from robustness.rules.metrics import metrics

WORK = Path(tempfile.mkdtemp())
command = [
    sys.executable, "train.py", "--model", "test_cvt_ls", "--epochs", "3", "--warmup-epochs", "1",
    "--output", str(WORK), "--experiment", "run",
]  # fmt: skip
done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
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
for number in metrics(report):
    print(f"{number.name}: {number.value:.1f} %")

# %% [markdown]
# The report is a folder: JSON, CSV, Markdown, a page and pictures.

# %%
sorted(path.name for path in (WORK / "report").iterdir())

# %%
Image(str(next((WORK / "report").glob("*.png"))))
