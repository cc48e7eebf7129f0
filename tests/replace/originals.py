"""Small transformers of timm's, of each family whose attention can be replaced."""

import timm
import torch

TINY = {"embed_dim": 32, "num_heads": 2, "depth": 2}
ORIGINALS = {
    "vit": ("vit_tiny_patch16_224", {**TINY, "img_size": (64, 96)}),
    "no_square_patches": ("vit_tiny_patch16_224", {**TINY, "img_size": (48, 80)}),
    "distilled": ("deit_tiny_distilled_patch16_224", {**TINY, "img_size": 64}),
    "deit3": ("deit3_small_patch16_224", {**TINY, "img_size": 64}),
    "registers": ("vit_small_patch14_reg4_dinov2", {**TINY, "img_size": (70, 56)}),
    "swiglu": ("vit_giant_patch14_reg4_dinov2", {**TINY, "img_size": (42, 56)}),
    "norms": ("test_vit3", {"img_size": 96}),
    "no_prefix": ("vit_medium_patch16_gap_240", {**TINY, "img_size": (64, 80)}),
    "mapped": ("vit_base_patch16_siglip_224", {**TINY, "img_size": 64}),
    "parallel": ("vit_small_patch16_18x2_224", {**TINY, "img_size": 64}),
    "eva02": ("eva02_tiny_patch14_224", {**TINY, "img_size": (70, 56)}),
    "dinov3": ("vit_small_patch16_dinov3", {**TINY, "img_size": (64, 96)}),
    "dinov3_biased": ("vit_small_patch16_dinov3_qkvb", {**TINY, "img_size": (64, 96)}),
    "mixed": ("vit_small_patch16_rope_mixed_224", {**TINY, "img_size": (64, 96)}),
    "beit": ("beit_base_patch16_224", {**TINY, "img_size": (64, 64)}),
}


def make(key, dtype=torch.float64, **more):
    """One of them in eval mode, with weights large enough that every part of it counts."""
    name, options = ORIGINALS[key]
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **{**options, **more}).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def images(model, count=2, size=None):
    dtype = next(model.parameters()).dtype
    return torch.randn(count, 3, *(size or model.patch_embed.img_size), dtype=dtype)
