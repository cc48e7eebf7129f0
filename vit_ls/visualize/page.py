"""One HTML page, with nothing outside of it, in which mouse, finger or keys move the query."""

import base64
import io
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vit_ls.recording import Attention
from vit_ls.style import SHADES
from vit_ls.visualize.pictures import TITLES, parts_of_all_queries

LARGEST = 28 * 28
"""Tokens of a grid that a page can hold: it has a map for each of them."""

_TEMPLATE = Path(__file__).with_name("page.html")


def write_page(layer: Attention, image: Image.Image, title: str, path: Path) -> None:
    """Write the page of one layer; maps are the mean of the heads, in 256 steps of their largest.

    Raises:
        ValueError: the grid has more than `LARGEST` tokens.
    """
    H, W = layer.grid
    if H * W > LARGEST:
        raise ValueError(
            f"a page must be of a grid of at most {LARGEST} tokens, got {H} x {W} of {layer.name}."
        )
    shares = {part: x[0].mean(0).flatten().tolist() for part, x in layer.shares().items()}
    parts = {
        part: {"title": TITLES[part], "maps": _steps(maps)}
        for part, maps in parts_of_all_queries(layer).items()
    }
    data = {
        "grid": [H, W],
        "parts": parts,
        "shades": SHADES,
        "shares": {TITLES[part]: [round(x, 4) for x in row] for part, row in shares.items()},
    }
    filled: Mapping[str, str] = {
        "TITLE": escape(f"{title}, {layer.name}"),
        "IMAGE": _png(image),
        "DATA": json.dumps(data).replace("<", "\\u003c"),
    }
    text = _TEMPLATE.read_text(encoding="utf-8")
    for name, value in filled.items():
        text = text.replace(f"@{name}@", value)
    path.write_text(text, encoding="utf-8")


def _steps(maps: "np.ndarray[Any, Any]") -> str:
    """Each row in 256 steps of its largest number, one byte each, in base64."""
    largest = np.maximum(maps.max(1, keepdims=True), 1e-12)
    return base64.b64encode((maps / largest * 255).round().astype(np.uint8).tobytes()).decode()


def _png(image: Image.Image) -> str:
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
