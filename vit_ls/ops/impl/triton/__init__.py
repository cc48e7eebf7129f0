"""Window attention by kernels in Triton, for GPUs: opt-in until one has measured them.

`operators` is what PyTorch sees, `support` where it runs, `launch` and `tiles` how kernels are
called. The kernels stand in `kernels`, `queries` and `keys`, and are imported where they first run:
Triton comes with PyTorch for CUDA only.
"""

from vit_ls.ops.impl.triton.operators import window_attention
from vit_ls.ops.impl.triton.support import too_old, why_not

__all__ = ["too_old", "why_not", "window_attention"]
