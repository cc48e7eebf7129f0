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
# Each row of a dynamic projection is a softmax over the image: a picture by nature. The weights
# come from the forward pass itself, by a hook on the layers that make their logits. The model is
# trained on the digits first; a minute on a CPU.

# %%
import matplotlib.pyplot as plt
import timm
import torch
import torch.nn.functional as F
from torchvision.transforms.functional import to_tensor

import vit_ls  # registers the models
from vit_ls.attention import LongShortAttention
from vit_ls.data.digits import Digits

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
layers = {n: m for n, m in model.named_modules() if isinstance(m, LongShortAttention) and m.rank}
rows = {}


def keep(name, layer):
    def hook(_module, _inputs, logits):
        # [B,H,W,h*R] -> softmax over the H * W tokens
        weights = logits.flatten(1, 2).softmax(1).unflatten(1, logits.shape[1:3])
        rows[name] = weights.unflatten(3, (layer.num_heads, layer.rank))

    return hook


hooks = [
    layer.dynamic_projection.register_forward_hook(keep(n, layer)) for n, layer in layers.items()
]
with torch.inference_mode():
    model(images[:4])
for hook in hooks:
    hook.remove()
{name: tuple(weights.shape) for name, weights in rows.items()}

# %% [markdown]
# The first head of the first layer: each column is one of its projected tokens, and where it looks.

# %%
name = next(iter(rows))
weights = rows[name][:, :, :, 0]
rank = min(weights.shape[-1], 6)
figure, axes = plt.subplots(4, rank + 1, figsize=(1.4 * (rank + 1), 5.6))
for line in range(4):
    axes[line, 0].imshow(images[line].permute(1, 2, 0))
    for r in range(rank):
        axes[line, r + 1].imshow(weights[line, :, :, r], cmap="Blues", vmin=0)
for one in axes.flat:
    one.axis("off")
figure.suptitle(name)
plt.show()

# %% [markdown]
# How much of the image a row uses: the entropy of its weights, as a share of that of equal weights.

# %%
spread = {}
for name, weights in rows.items():
    p = weights.flatten(1, 2)
    spread[name] = (-(p * p.log()).sum(1) / torch.tensor(float(p.shape[1])).log()).mean().item()
spread
