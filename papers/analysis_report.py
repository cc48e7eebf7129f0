"""What `papers.analysis` found, in sentences and pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from vit_ls.style import log_axis, look, picture, plain

Row = Mapping[str, Any]

_WORDS = {
    "layer": "layer",
    "block": "block",
    "side": "side of the image (pixels)",
    "length": "tokens",
    "ratio": "norm, projected / window",
    "cosine": "mean cosine of two tokens",
    "MiB": "kept for training (MiB)",
    "share": "share of attention",
    "scores": "scores of a head",
}

_AXES = {
    "norms": ("layer", "ratio", ("model", "kind")),
    "cosine": ("block", "cosine", ("model",)),
    "memory": ("side", "MiB", ("model",)),
    "shares": ("layer", "share", ("model", "part")),
    "length": ("length", "scores", ("attention",)),
}


def draw(rows_of: Mapping[str, Sequence[Row]], path: Path) -> None:
    """A panel for each analysis, under what it found."""
    found = {analysis: finding(analysis, rows) for analysis, rows in rows_of.items()}
    several = len(found) > 1
    across = 2 if several else 1
    down = -(-len(found) // across)
    names = {
        str(row["model"]): None for rows in rows_of.values() for row in rows[:1] if "model" in row
    }
    title = f"{' and '.join(names)}: {len(found)} arguments of the papers, and what was found"
    title = title if several else next(iter(found.values()))
    with picture(path, title, across=across, down=down, height=0.6 + 2.9 * down) as panels:
        for axes, (analysis, rows) in zip(panels, rows_of.items(), strict=False):
            x, y, lines = _AXES[analysis]
            plot(axes, rows, x=x, y=y, lines=lines)
            if several:
                axes.set_title(fill(found[analysis], 40))
        for axes in panels[len(rows_of) :]:
            axes.set_axis_off()


def plot(axes: Any, rows: Sequence[Row], *, x: str, y: str, lines: Sequence[str]) -> None:
    """One line for each value of the columns `lines`."""
    from matplotlib.ticker import MaxNLocator

    curves: dict[tuple[str, ...], list[Row]] = {}
    names = [row[x] for row in rows if isinstance(row[x], str)]
    places = {name: i for i, name in enumerate(dict.fromkeys(names))}
    for row in rows:
        curves.setdefault(tuple(str(row[c]) for c in lines), []).append(row)
    titles = distinct([", ".join(key) for key in curves])
    for number, (name, points) in enumerate(zip(titles, curves.values(), strict=True)):
        along = [places.get(row[x], row[x]) for row in points]
        values = [row[y] for row in points]
        axes.plot(along, values, label=name, **look(number, len(curves)))
    if y in ("MiB", "scores"):
        log_axis(
            axes.xaxis, [64, 128, 256] if y == "MiB" else sorted({row[x] for row in rows})[1::2]
        )
        log_axis(axes.yaxis)
    if places:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=_WORDS.get(x, x), ylabel=_WORDS.get(y, y))


def distinct(titles: Sequence[str]) -> list[str]:
    """Titles without the parts that all of them have; one that has no other stays as it is."""
    parts = [title.split(", ") for title in titles]
    common = set(parts[0]).intersection(*parts) if len(parts) > 1 else set()
    own = [", ".join(part for part in words if part not in common) for words in parts]
    shown = [short or title for short, title in zip(own, titles, strict=True)]
    for option, words in (("dual_ln=False", "no DualLN"), ("attention=full", "full attention")):
        shown = [name.replace(option, words) for name in shown]
    return shown


def finding(analysis: str, rows: Sequence[Row]) -> str:
    """What the rows of an analysis say, in a sentence."""
    if analysis == "norms":
        with_it = [row["ratio"] for row in rows if "dual_ln=False" not in row["model"]]
        without = [row["ratio"] for row in rows if "dual_ln=False" in row["model"]]
        said = f"Projected norms are {_span(with_it)} of the window's with DualLN"
        return f"{said}, {_span(without)} without" if without else said
    if analysis == "cosine":
        last = {row["model"]: row["cosine"] for row in rows}
        names = distinct(list(last))
        values = (f"{v:.2f} ({n})" for n, v in zip(names, last.values(), strict=True))
        return f"Tokens' likeness at the end: {', '.join(values)}"
    if analysis == "memory":
        most = max(row["side"] for row in rows)
        last = {row["model"]: row["MiB"] for row in rows if row["side"] == most}
        names = distinct(list(last))
        values = (f"{v:.0f} MiB ({n})" for n, v in zip(names, last.values(), strict=True))
        return f"At {most} pixels training keeps {', '.join(values)}"
    if analysis == "shares":
        projected = [row["share"] for row in rows if row["part"] == "projected"]
        if not projected:
            return "No layer has projected tokens"
        first, last = projected[0], projected[-1]
        return f"Projected tokens get {first:.0%} of attention at first, {last:.0%} at last"
    most = max(row["length"] for row in rows)
    scores = {row["attention"]: row["scores"] for row in rows if row["length"] == most}
    least = min(scores, key=lambda name: scores[name])
    times = scores["full"] / scores[least]
    return (
        f"At {plain(most)} tokens {least} need {times:.0f} times fewer scores than full attention"
    )


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
