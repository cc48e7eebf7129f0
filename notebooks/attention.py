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
# # Look at the attention
#
# Each projected token is a mean of the image, with weights that one can draw. `vit_ls.record` takes
# them from the forward pass itself. The model is trained on the digits first; a minute on a CPU.

# %% [markdown]
# Install the checkout once. Then the notebook runs from any folder.

# %% tags=["skip-execution"]
CHECKOUT = ".."  # the path of your checkout
# %pip install -q -e "{CHECKOUT}[demo]"

# %%
import io

import timm
import torch
import torch.nn.functional as F
from IPython.display import Image
from torchvision.transforms.functional import to_tensor

import vit_ls  # registers the models
from vit_ls.data.digits import Digits
from vit_ls.style import bare, picture, shades

torch.manual_seed(0)
digits = list(Digits(held_out=False))
images = torch.stack([to_tensor(image) for image, _ in digits])
labels = torch.tensor([label for _, label in digits])

model = timm.create_model("test_cvt_ls", num_classes=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(4):
    for batch in torch.randperm(len(images)).split(64):
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

# %%
model.eval()
with torch.inference_mode(), vit_ls.record(model) as records:
    model(images[:2])
# of each layer P: [B, heads, projected tokens, tokens of the grid]
rows = {name: r.projection for name, r in records.items() if r.projection is not None}
grids = {name: records[name].grid for name in rows}
{name: tuple(weights.shape) for name, weights in rows.items()}

# %% [markdown]
# The first head of the first layer: each column is one of its projected tokens, and where it looks.

# %%
name = next(iter(rows))
drawn = io.BytesIO()
with picture(
    drawn, "Projected tokens look at different places", across=5, down=2, height=4
) as panels:
    for line in range(2):
        first, *maps = panels[5 * line : 5 * line + 5]
        first.imshow(images[line].permute(1, 2, 0))
        bare(first, "image")
        for r, axes in enumerate(maps):
            axes.imshow(rows[name][line, 0, r].unflatten(0, grids[name]), cmap=shades(), vmin=0)
            bare(axes, f"token {r}")
Image(drawn.getvalue())

# %% [markdown]
# How much of the image a token uses: the entropy of its weights, as a share of that of equal ones.

# %%
spread = {}
for name, p in rows.items():
    entropy = -(p * p.clamp(min=1e-12).log()).sum(-1)
    spread[name] = (entropy / torch.tensor(float(p.shape[-1])).log()).mean().item()
    print(f"{name}: {spread[name]:.0%}")
