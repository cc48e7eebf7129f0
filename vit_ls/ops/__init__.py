"""Pure tensor functions: no parameters, no state. Tensors come first, the rest by keyword."""

from vit_ls.ops.impl import Positions, Windows
from vit_ls.ops.position_bias import (
    grid_bias,
    narrow_window_table,
    resize_grid_table,
    resize_window_table,
    turned_grid_bias,
    window_bias,
    window_halo,
    window_row_stride,
    window_table_rows,
)
from vit_ls.ops.position_embedding import resize_axis, resize_positions
from vit_ls.ops.rules import (
    in_plain_inference,
    is_eager,
    is_unobserved,
    precision_of_products,
    use_implementation,
)
from vit_ls.ops.slices import (
    add_to_tokens,
    attend_slices,
    project_positions,
    slice_attention,
    slice_embedding,
    slice_halo,
    slice_tokens,
)
from vit_ls.ops.softmax_attention import (
    attend,
    check_heads,
    merge_heads,
    softmax_float32,
    split_heads,
)
from vit_ls.ops.window import (
    divides,
    dynamic_projection,
    global_attention,
    inside,
    long_short_attention,
    planned,
    window_attention,
)

__all__ = [
    "Positions",
    "Windows",
    "add_to_tokens",
    "attend",
    "attend_slices",
    "check_heads",
    "divides",
    "dynamic_projection",
    "global_attention",
    "grid_bias",
    "in_plain_inference",
    "inside",
    "is_eager",
    "is_unobserved",
    "long_short_attention",
    "merge_heads",
    "narrow_window_table",
    "planned",
    "precision_of_products",
    "project_positions",
    "resize_axis",
    "resize_grid_table",
    "resize_positions",
    "resize_window_table",
    "slice_attention",
    "slice_embedding",
    "slice_halo",
    "slice_tokens",
    "softmax_float32",
    "split_heads",
    "turned_grid_bias",
    "use_implementation",
    "window_attention",
    "window_bias",
    "window_halo",
    "window_row_stride",
    "window_table_rows",
]
