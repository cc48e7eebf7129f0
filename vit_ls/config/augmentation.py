# ruff: noqa: RUF009 - setting makes dataclass fields
"""How training images and their labels are changed: augmentation, mixing, losses."""

from dataclasses import dataclass

from vit_ls.config.rows import ABOVE_0, BELOW_1, NOT_BELOW_0, SHARE, Needs, Rule, setting
from vit_ls.config.shared import RESAMPLING

_PAIR = Rule(above=0, lengths=(2,))
_AUGMENTATION = Needs(lambda c: not c.no_aug, "augmentation, which --no-aug turns off")
_NO_POLICY = Needs(lambda c: not c.aa or "3a" in c.aa, "no --aa, or one of 3-Augment ('3a')")
_JITTER = Needs(lambda c: c.color_jitter > 0, "a --color-jitter above 0")
_JITTER_PROB = Needs(
    lambda c: c.color_jitter_prob != 0 or c.color_jitter == 0, "a --color-jitter-prob above 0"
)
_ERASING = Needs(lambda c: c.reprob > 0, "--reprob")
_ERASING_OR_SPLIT = Needs(lambda c: c.reprob > 0 or c.split_bn, "--reprob or --split-bn")
_MIXING = Needs(lambda c: c.mixes, "--mixup or --cutmix")
_MIXUP_AND_CUTMIX = Needs(
    lambda c: c.mixup > 0 and (c.cutmix > 0 or c.cutmix_minmax is not None), "--mixup and --cutmix"
)
_BCE = Needs(lambda c: c.bce_loss, "--bce-loss")


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Augmentation."""

    no_aug: bool = setting(False, "no augmentation")
    train_crop_mode: str | None = setting(
        None, "training crop", Rule(choices=("rrc", "rkrc", "rkrr")), needs=(_AUGMENTATION,)
    )
    scale: list[float] = setting(
        [0.08, 1.0], "area of the training crop", _PAIR, needs=(_AUGMENTATION,)
    )
    ratio: list[float] = setting(
        [3 / 4, 4 / 3], "aspect of the training crop", _PAIR, needs=(_AUGMENTATION,)
    )
    hflip: float = setting(0.5, "horizontal flip", SHARE, needs=(_AUGMENTATION,))
    vflip: float = setting(0.0, "vertical flip", SHARE, needs=(_AUGMENTATION,))
    train_interpolation: str = setting(
        "random",
        "training resampling",
        Rule(choices=("random", *RESAMPLING)),
        needs=(_AUGMENTATION,),
    )
    aa: str | None = setting(None, "AutoAugment or RandAugment policy", needs=(_AUGMENTATION,))
    color_jitter: float = setting(
        0.4,
        "colour jitter",
        NOT_BELOW_0,
        needs=(
            _AUGMENTATION,
            _NO_POLICY,
            _JITTER_PROB,
        ),
    )
    color_jitter_prob: float | None = setting(
        None,
        "its probability",
        SHARE,
        needs=(
            _AUGMENTATION,
            _NO_POLICY,
            _JITTER,
        ),
    )
    grayscale_prob: float = setting(0.0, "to grey", SHARE, needs=(_AUGMENTATION,), timm_unset=None)
    gaussian_blur_prob: float = setting(0.0, "blur", SHARE, needs=(_AUGMENTATION,), timm_unset=None)
    reprob: float = setting(0.0, "random erasing", SHARE, needs=(_AUGMENTATION,))
    remode: str = setting(
        "pixel", "what it fills in", Rule(choices=("pixel", "rand", "const")), needs=(_ERASING,)
    )
    recount: int = setting(1, "patches it erases", Rule(above=0, most=1000), needs=(_ERASING,))
    resplit: bool = setting(
        False,
        "spare the clean versions, or the first half without --aug-splits",
        needs=(_ERASING_OR_SPLIT,),
    )
    aug_repeats: int = setting(
        0, "versions of an image per epoch, of 1 / as many images", NOT_BELOW_0
    )
    aug_splits: int = setting(
        0, "AugMix: versions of each image, the first one clean", Rule(least=0, most=64)
    )
    reduced_decoding: bool = setting(
        False, "decode a JPEG at 1/2, 1/4 or 1/8 where its crop allows it"
    )


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Losses, and mixing of images and labels."""

    smoothing: float = setting(
        0.1, "label smoothing", BELOW_1, sequence=True, known_as="label_smoothing"
    )
    mixup: float = setting(0.0, "mixup alpha", NOT_BELOW_0)
    cutmix: float = setting(0.0, "cutmix alpha", NOT_BELOW_0)
    cutmix_minmax: list[float] | None = setting(
        None, "cutmix ratio range", Rule(lengths=(2,), least=0, most=1)
    )
    mixup_prob: float = setting(1.0, "probability of either", SHARE, needs=(_MIXING,))
    mixup_switch_prob: float = setting(
        0.5, "probability of cutmix where both are on", SHARE, needs=(_MIXUP_AND_CUTMIX,)
    )
    mixup_mode: str = setting(
        "batch", "what shares one ratio", Rule(choices=("batch", "pair", "elem")), needs=(_MIXING,)
    )
    mixup_off_epoch: int = setting(
        0, "epoch from which both are off; 0: never", NOT_BELOW_0, needs=(_MIXING,)
    )
    bce_loss: bool = setting(False, "binary cross-entropy")
    bce_sum: bool = setting(False, "sum it over the classes", needs=(_BCE,))
    bce_target_thresh: float | None = setting(
        None, "threshold of its soft targets", SHARE, needs=(_BCE,)
    )
    bce_pos_weight: float | None = setting(None, "weight of its positives", ABOVE_0, needs=(_BCE,))
    jsd_loss: bool = setting(False, "Jensen-Shannon divergence between them, and cross-entropy")

    @property
    def mixes(self) -> bool:
        """Whether images are mixed, so that targets are soft."""
        return self.mixup > 0 or self.cutmix > 0 or self.cutmix_minmax is not None
