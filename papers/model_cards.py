"""Model cards, one for each family: docs/models/<family>.md.

    python -m papers.model_cards

Names, channels and strides come from the registry, parameters and FLOPs from the models, accuracies
from the papers, speed and memory from the committed measurements. Takes minutes on a CPU: fvcore
counts by running each model once.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import timm

import vit_ls  # noqa: F401  registers the models
from papers.measured import machine, speed_table
from vit_ls.count import count_flops, count_params
from vit_ls.paper import LONG_SHORT_TABLE_5, LONG_SHORT_TEXT, RELEASED, named
from vit_ls.style import markdown_table

_logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parents[1] / "docs" / "models"
COLUMNS = ("model", "side (px)", "params (M)", "GFLOPs", "top-1 (%)", "accuracy from")
MAPS = ("models", "channels at strides")

_Forms = dict[tuple[str, int], tuple[dict[str, Any], float | None, str]]
"""Options, the accuracy, and where it is printed."""

_ALL = (
    "No weights were trained on ImageNet for this repository: accuracies are the papers'.",
    "Any height and width runs. Far from the size of training, accuracy was not measured.",
    "`output_stride` is not supported: there is nothing to dilate.",
)


@dataclass(frozen=True)
class Family:
    """What a card says beside its table."""

    title: str
    prefixes: tuple[str, ...]
    """Of the names of its models."""
    text: str
    limits: tuple[str, ...]


FAMILIES = {
    "vil_ls": Family(
        "ViL-LS",
        ("vil_ls_",),
        "Vision Longformer's layout with the long-short attention of the Long-Short Transformer "
        "(arXiv:2107.02192): two stages of windows and a dynamic projection under one softmax, "
        "then two of full attention, each stage with a global token and a relative position bias.",
        (
            "The authors' checkpoints of `vil_ls_medium`, `vil_ls_base` and `vil_ls_medium_384` "
            "load; their published addresses were not tried.",
            "Stages 3 and 4 attend fully, at strides 16 and 32: quadratic in the area there.",
            "Tiny and small are layouts of Vision Longformer, not models of the paper.",
        ),
    ),
    "vil": Family(
        "ViL",
        ("vil_tiny", "vil_small", "vil_medium", "vil_base"),
        "Vision Longformer as Microsoft released it (arXiv:2103.15358): two stages in which a "
        "token sees its window and the eight around it, then two of full attention; global tokens "
        "in the first three; position biases (relative) or embeddings of rows and columns "
        "(absolute).",
        (
            "Weights: `model_best.pth` at the addresses of Microsoft's README, for which it states "
            "no licence; the code has the MIT licence. [The table of weights](../weights.md) says "
            "what was verified.",
            "The wide models are absolute, the others relative unless a tag (`msft_abs_*`) or "
            "`position=` says otherwise; no base was released at 224.",
            "Images whose sides a stride does not divide are padded; the released code cuts them, "
            "and takes no size but the one it was built for.",
            "Stages 3 and 4 attend fully, at strides 16 and 32: quadratic in the area there.",
        ),
    ),
    "cvt_ls": Family(
        "CvT-LS",
        ("cvt_ls_",),
        "The convolutional vision transformer (arXiv:2103.15808) with the long-short attention of "
        "arXiv:2107.02192 in all three stages, queries, keys, values and the projection by "
        "convolutions, no position encoding; and the paper's full-attention baselines.",
        (
            "The paper's code was never published: the architecture is the one whose parameters "
            "and FLOPs are those printed.",
            "The accuracy of the full-attention baseline is the authors' own. Table 5 prints "
            "better ones of CvT, which are of [Microsoft's models](cvt.md).",
            "Three stages: no map at stride 32.",
            "Batch norm: small batches need frozen or synchronised statistics.",
        ),
    ),
    "cvt": Family(
        "CvT",
        ("cvt_13", "cvt_21", "cvt_w24"),
        "The convolutional vision transformer as Microsoft released it (arXiv:2103.15808). It has "
        "three stages of full attention. Convolutions make queries, keys and values, those of keys "
        "and values with stride 2. It has no position encoding, and QuickGELU.",
        (
            "Weights: `microsoft/cvt-*` on the Hugging Face Hub, licensed apache-2.0 there. The "
            "original code, of which they are, has the MIT licence (Microsoft) and says nothing of "
            "weights. [The table of weights](../weights.md) says what was verified.",
            "Accuracies are of training on ImageNet-1K, as the Long-Short paper's table 5 quotes "
            "them; that table's FLOPs and latencies of CvT are of [its own baseline](cvt_ls.md).",
            "The attention scale of the released code, dim^-0.5, goes into the queries' weights "
            "when a file is loaded; saved again, weights have this package's scale.",
            "Image sides of 1 or 2 modulo 4 give a first map of floor((side + 1) / 4), as in the "
            "released code, one less than the side divided by 4 and rounded up; 3 is the least.",
            "Three stages: no map at stride 32.",
            "Batch norm: small batches need frozen or synchronised statistics.",
        ),
    ),
    "cst_vit": Family(
        "CST-ViT",
        ("cst_vit_",),
        "The plain vision transformer (arXiv:2012.12877) with composite slice attention (Composite "
        "Slice Transformer, ICLR 2023) in each block: attention inside windows, then among their "
        "means.",
        (
            "The paper treats sequences: the image models are this repository's own, and no "
            "accuracy on images is published.",
            "One stride for all blocks: for dense prediction take `cst_vil_*`.",
        ),
    ),
    "cst_vil": Family(
        "CST-ViL",
        ("cst_vil_",),
        "ViL-LS's layout with composite slice attention in place of long-short attention.",
        (
            "This repository's own: no accuracy is published.",
            "Stages 3 and 4 attend fully, at strides 16 and 32: quadratic in the area there.",
        ),
    ),
}


def models_of(family: str) -> list[str]:
    """Names of the models on a family's card, those for tests aside."""
    names: Iterator[str] = (
        name
        for name in timm.list_models()
        if timm.model_entrypoint(name).__module__.startswith("vit_ls.")
    )
    return [name for name in names if name.startswith(FAMILIES[family].prefixes)]


def card(family: str) -> str:
    """The text of a family's card."""
    about = FAMILIES[family]
    lines = [f"# {about.title}", "", fill(about.text, 100), ""]
    rows: list[tuple[str, ...]] = []
    for name in models_of(family):
        _logger.info("%s", name)
        rows += _cells(name)
    lines += [f"## How large, and how accurate, is {about.title}?", ""]
    lines.append(markdown_table(COLUMNS, rows, numbers=(1, 2, 3, 4)))
    lines += ["", "A multiply-add counts once. No accuracy was measured here.", "", rest(family)]
    return "\n".join(lines)


def rest(family: str) -> str:
    """What stands below the first table of a card, and takes no counting."""
    about = FAMILIES[family]
    lines = ["## How fast is it, and how much memory does it take?", ""]
    table = speed_table(about.prefixes)
    lines += [table or "No model of this family was measured here.", ""]
    if table and "inference" not in table:
        lines += ["No model of this family was measured here: the rows are the paper's.", ""]
    elif table:
        said = (
            f"Measured on {machine()}, the newest row of each. Rows of one image let the process "
            "keep freed memory. Peak memory is what a call takes above what the process held. "
            "[How it was measured](../evidence/speed.md)."
        )
        lines += [fill(said, 100), ""]
    if (FOLDER.parent / "images" / f"architecture_{family}.png").exists():
        shown = f"Stages of a {about.title}, with their tokens and windows"
        picture = f"![{shown}](../images/architecture_{family}.png)"
        lines += ["## How is it built?", "", picture, ""]
        lines += ["`python -m papers.pictures.architecture` draws it from the model.", ""]
    lines += ["## Which maps does it give?", "", _maps(family), ""]
    limits = (fill(f"- {limit}", 100, subsequent_indent="  ") for limit in (*about.limits, *_ALL))
    lines += ["## What are its limits?", "", *limits, ""]
    return "\n".join([*lines, "`python -m papers.model_cards` wrote this page.", ""])


def _maps(family: str) -> str:
    """Models with the same maps in one row."""
    alike: dict[str, list[str]] = {}
    for name in models_of(family):
        model: Any = timm.create_model(name, device="meta")
        alike.setdefault(channels_at_strides(model.feature_info), []).append(f"`{name}`")
    return markdown_table(MAPS, [(", ".join(names), maps) for maps, names in alike.items()])


def channels_at_strides(feature_info: list[dict[str, Any]]) -> str:
    """Such as "96 at 4, 192 at 8", or "192 at 16, 12 times" where maps are alike."""
    kinds = groupby((info["num_chs"], info["reduction"]) for info in feature_info)
    return ", ".join(
        f"{chs} at {stride}" + (f", {n} times" if (n := len(list(alike))) > 1 else "")
        for (chs, stride), alike in kinds
    )


def printed(name: str) -> _Forms:
    """The forms of a model that the paper has.

    Returns:
        For a call that makes it and a size its options, the accuracy, and where it is printed.
    """
    forms: _Forms = {}
    for rows, where in ((LONG_SHORT_TABLE_5, "its table 5"), (LONG_SHORT_TEXT, "its text")):
        for row in rows:
            if row.model is not None and row.model.partition(".")[0] == name:
                key = (named(name, row.options), row.img_size)
                _, before, source = forms.get(key, ({}, None, ""))
                found = (before, source) if row.top1 is None else (row.top1, _LS.format(where))
                forms[key] = (dict(row.options), *found)
    return forms


_LS = "[arXiv:2107.02192](../papers.md), {}"


def released(name: str) -> tuple[float | None, str]:
    """The accuracy of the weights that timm takes by default, and who prints it."""
    tag = timm.get_pretrained_cfg(name).tag  # type: ignore[union-attr]
    for row in RELEASED:
        if row.tag == f"{name}.{tag}":
            return row.top1, f"[`{tag}`](../weights.md)"
    return None, ""


def _cells(name: str) -> Iterator[tuple[str, ...]]:
    cfg: Any = timm.get_pretrained_cfg(name)
    own: _Forms = {(name, cfg.input_size[-1]): ({}, *released(name))}
    forms = own | {key: form for key, form in printed(name).items() if form[1] or key not in own}
    for (title, size), (options, top1, source) in sorted(forms.items(), key=lambda form: form[0]):
        model: Any = timm.create_model(name, **options).eval()
        yield (
            f"`{title}`",
            str(size),
            f"{count_params(model) / 1e6:.2f}",
            f"{count_flops(model, (size, size)) / 1e9:.2f}",
            "" if top1 is None else str(top1),
            source,
        )


def main() -> None:
    """Write the cards of all families."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        (FOLDER / f"{family}.md").write_text(card(family))


if __name__ == "__main__":
    main()
