"""How far apart two ways to compute the same thing may be, by dtype."""

import torch

TOLERANCE = {
    torch.float64: {"rtol": 0.0, "atol": 1e-10},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
}
