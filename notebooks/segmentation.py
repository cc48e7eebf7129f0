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
# # Features for segmentation
#
# Four maps of a backbone, one small head, and masks of discs and squares in noise. A minute on a
# CPU; `examples/segment_digits.py` does the same on digits, and longer.

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
from torch import nn

import vit_ls  # registers the models
from vit_ls.style import bare, picture

generator = torch.Generator().manual_seed(0)


def scenes(count, size=64):
    """Grey pictures with a disc and a square in noise, and the mask of both."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    place = torch.randint(12, size - 12, (count, 4, 1, 1), generator=generator)
    side = torch.randint(5, 11, (count, 2, 1, 1), generator=generator)
    disc = (y - place[:, 0]) ** 2 + (x - place[:, 1]) ** 2 <= side[:, 0] ** 2
    square = ((y - place[:, 2]).abs() <= side[:, 1]) & ((x - place[:, 3]).abs() <= side[:, 1])
    noise = torch.randn(count, size, size, generator=generator) / 2
    shapes = disc | square
    return (shapes + noise)[:, None].expand(-1, 3, -1, -1), shapes.long()


# %%
class Segmenter(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.backbone = timm.create_model(name, features_only=True)
        channels = self.backbone.feature_info.channels()
        self.lateral = nn.ModuleList(nn.Conv2d(c, 32, 1) for c in channels)
        self.head = nn.Conv2d(32, 2, 3, padding=1)

    def forward(self, images):
        maps = [layer(m) for layer, m in zip(self.lateral, self.backbone(images), strict=True)]
        size = maps[0].shape[2:]
        joined = sum(F.interpolate(m, size, mode="bilinear") for m in maps)
        return F.interpolate(self.head(joined), images.shape[2:], mode="bilinear")


torch.manual_seed(0)
model = Segmenter("test_vil_ls")
[(m.shape[1], tuple(m.shape[2:])) for m in model.backbone(torch.randn(1, 3, 64, 64))]

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(150):
    images, masks = scenes(16)
    loss = F.cross_entropy(model(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step + 1, loss.item())

# %%
model.eval()
images, masks = scenes(64)
with torch.inference_mode():
    found = model(images).argmax(1)
both, either = ((found & masks) > 0).sum().item(), ((found | masks) > 0).sum().item()
iou = both / either
print("IoU of the shapes, on new scenes:", iou)

# %%
drawn = io.BytesIO()
with picture(
    drawn, f"New scenes: the masks overlap by {iou:.0%}", across=3, down=2, height=5
) as panels:
    for row in range(2):
        shown = (("image", images[row, 0]), ("truth", masks[row]), ("prediction", found[row]))
        for axes, (words, pixels) in zip(panels[3 * row :], shown, strict=False):
            axes.imshow(pixels, cmap="gray_r")
            bare(axes, words)
Image(drawn.getvalue())
