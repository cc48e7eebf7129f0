"""What timm's `resolve_data_config` would say of the small images of the tests."""

from typing import Any

DATA: dict[str, Any] = {
    "input_size": (3, 32, 32),
    "mean": (0.5,) * 3,
    "std": (0.5,) * 3,
    "interpolation": "bicubic",
    "crop_pct": 1.0,
    "crop_mode": "center",
}
