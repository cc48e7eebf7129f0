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
# # Export to ONNX and OpenVINO
#
# One ONNX file for any batch and any image size, run by ONNX Runtime and by OpenVINO, and
# compared with PyTorch. Needs the extras `export` and `openvino`; a minute on a CPU.

# %% [markdown]
# Install the checkout once. Then the notebook runs from any folder.

# %% tags=["skip-execution"]
CHECKOUT = ".."  # the path of your checkout
# %pip install -q -e "{CHECKOUT}[openvino]"

# %%
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
import timm
import torch

import vit_ls  # registers the models
from vit_ls.export import main as export

path = Path(tempfile.mkdtemp()) / "model.onnx"
torch.manual_seed(0)
model = timm.create_model("test_cvt_ls").eval()
weights = path.with_name("weights.pth")
torch.save(model.state_dict(), weights)
export(["--model", "test_cvt_ls", "--checkpoint", str(weights), "--out", str(path)])

# %%
session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
compiled = openvino.Core().compile_model(
    openvino.convert_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
)
apart = {}
for shape in ((1, 3, 32, 32), (2, 3, 51, 40)):
    images = torch.randn(shape)
    with torch.inference_mode():
        wanted = model(images).numpy()
    onnx = session.run(None, {session.get_inputs()[0].name: images.numpy()})[0]
    vino = compiled([images.numpy()])[0]
    apart[shape] = [float(np.abs(found - wanted).max()) for found in (onnx, vino)]
print("largest difference from PyTorch (ONNX Runtime, OpenVINO):", apart)
