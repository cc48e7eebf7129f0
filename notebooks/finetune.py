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
# # Fine-tune on a folder of your own
#
# `train.py` takes a folder with `train/CLASS/*` and `validation/CLASS/*`. Here it is written from
# scikit-learn's digits, so that this runs without a download: a model is trained on 0 to 4, and
# fine-tuned on 5 to 9, of which it gets few images. A minute on a CPU.

# %% [markdown]
# Install the checkout once. Then the notebook runs from any folder.

# %% tags=["skip-execution"]
CHECKOUT = ".."  # the path of your checkout
# %pip install -q -e "{CHECKOUT}[demo]"

# %%
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import vit_ls
from vit_ls.data.digits import Digits

ROOT = Path(vit_ls.__file__).parents[1]  # of the checkout
WORK = Path(tempfile.mkdtemp())


def write_folder(folder, labels, per_class):
    for split, held_out in (("train", False), ("validation", True)):
        digits, count = Digits(held_out=held_out), dict.fromkeys(labels, 0)
        for image, label in digits:
            if label in count and (held_out or count[label] < per_class):
                count[label] += 1
                path = folder / split / str(label) / f"{count[label]}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                image.save(path)
    return folder


many = write_folder(WORK / "many", range(5), 1000)
few = write_folder(WORK / "few", range(5, 10), 20)
sorted(path.name for path in (few / "train").iterdir())


# %% [markdown]
# The same settings as for the digits that come with the package, on the folder.


# %%
def train(name, data, *more):
    command = [
        sys.executable, "train.py", "--config", "configs/digits.yaml", "--dataset", "",
        "--data-dir", data, "--model", "test_cvt_ls", "--output", WORK, "--experiment", name, *more,
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with (WORK / name / "summary.csv").open() as file:
        return [float(row["eval_top1"]) for row in csv.DictReader(file)]


source = train("source", many, "--epochs", "6", "--warmup-epochs", "1")
source

# %% [markdown]
# Fine-tuning takes the checkpoint; its classifier starts anew, because the classes are others.
# Beside it the same training from nothing: on images as easy as these it does no worse, and the
# start brings nothing. What is shown is how, not a gain.

# %%
best = WORK / "source" / "model_best.pth.tar"
flags = ["--epochs", "6", "--warmup-epochs", "1", "--batch-size", "20", "--lr", "1e-3"]
tuned = train("tuned", few, "--pretrained-path", best, *flags)
scratch = train("scratch", few, *flags)
print("fine-tuned  ", tuned)
print("from nothing", scratch)

# %% [markdown]
# `python train.py --help` lists what else there is: `--freeze`, `--layer-decay`, `--img-size`.
# `python publish.py` makes a folder for the Hugging Face Hub of `model_best.pth.tar`.
