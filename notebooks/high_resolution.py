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
# # One pass over a 2048 px image, against tiles
#
# Attention that is linear in the number of tokens takes a large image whole. Tiles take about as
# long, and each sees itself alone: the map changes, most at the borders. A minute on a CPU.

# %% [markdown]
# Install the checkout once. Then the notebook runs from any folder.

# %% tags=["skip-execution"]
CHECKOUT = ".."  # the path of your checkout
# %pip install -q -e "{CHECKOUT}[examples]"

# %%
import io
import sys
import time
from pathlib import Path

import timm
import torch
from IPython.display import Image

import vit_ls  # registers the models
from vit_ls.style import bare, picture, shades

sys.path.insert(0, str(Path(vit_ls.__file__).parents[1] / "examples"))  # of the checkout
from high_resolution import as_tensor, beside_seams, differences, read_image

SIDE, TILE = 2048, 512
photo = read_image(None)  # the retina that scikit-image ships
x = as_tensor(photo, SIDE)
torch.manual_seed(0)
model = timm.create_model("cvt_ls_13").eval()  # untrained
tuple(x.shape)


# %% [markdown]
# The whole image, then 16 tiles whose maps are put together again.


# %%
def timed(work):
    start = time.perf_counter()
    with torch.inference_mode():
        result = work()
    return result, time.perf_counter() - start


def by_tiles():
    rows = [
        torch.cat([model.forward_features(tile) for tile in strip.split(TILE, 3)], 3)
        for strip in x.split(TILE, 2)
    ]
    return torch.cat(rows, 2)


whole, whole_s = timed(lambda: model.forward_features(x))
tiled, tiled_s = timed(by_tiles)
print(f"map {tuple(whole.shape)}: {whole_s:.0f} s in one pass, {tiled_s:.0f} s in tiles")

# %% [markdown]
# How far a token of the map moves, in percent of the mean length of a token:

# %%
change = differences(whole[0], tiled[0])
near, other = beside_seams(change, TILE // 16)
print(f"beside borders of tiles {near:.1%}, elsewhere {other:.1%}")

# %%
drawn = io.BytesIO()
title = f"Tiles change the map by {near:.0%} at their borders, by {other:.0%} elsewhere"
with picture(drawn, title, across=2, height=4.6) as (left, right):
    left.imshow(photo.resize((512, 512)))
    bare(left, "image")
    shown = right.imshow(100 * change, cmap=shades(), vmin=0)
    right.figure.colorbar(shown, ax=right, shrink=0.8, label="difference (%)")
    bare(right, "where the map changes")
Image(drawn.getvalue())

# %% [markdown]
# `python examples/high_resolution.py --cost` measures time and memory up to 4096 pixels, beside
# Swin, Hiera and ViT.
