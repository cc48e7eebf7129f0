"""One look for every picture: colours, markers, names at line ends, plain ticks; and for tables.

The colours are those of Okabe and Ito, which colour-blind readers tell apart, each with a marker of
its own for print in grey. The ground is white, so that a picture reads on a dark page, too.
matplotlib, an optional package, is imported where something is drawn.
"""

import io
import math
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, QUIET = "#222222", "#595959"
"""Of text, and of what stands back: 4.5:1 and more on white."""

SHADES = ("#FFFFFF", "#7FB2DB", "#08306B")
"""Of a map, from nothing to most: darker is more, in grey too."""

WIDTH, DPI = 8.0, 120
"""Of a picture in inches, and its dots: shown at 800 pixels its text is as large as a page's."""

_LOOK: Any = {
    "axes.edgecolor": QUIET,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.ymargin": 0.08,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "savefig.facecolor": "white",
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()
) -> str:
    """A table in Markdown, without a line's end after it.

    Args:
        head: Names of the columns.
        rows: Cells.
        numbers: Places of the columns that are set to the right.
    """
    rule = ["---:" if place in numbers else "---" for place in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


@contextmanager
def picture(
    path: Path | io.BytesIO,
    title: str,
    *,
    across: int = 1,
    down: int = 1,
    height: float = 4.2,
    note: str = "",
    says: Mapping[str, str] | None = None,
    colours: int = 256,
) -> Iterator[list[Any]]:
    """A picture of panels, written when the block ends, its lines named at their ends.

    Args:
        path: A PNG file, whose folder is made; or bytes that take it.
        title: What the picture shows, as a finding.
        across: Panels in a row.
        down: Rows of panels.
        height: Of the picture in inches.
        note: Where and how the values were found, in small print.
        says: What the file carries beside the picture, by name.
        colours: Of the file, at most 256; fewer make a picture of photographs small.

    Yields:
        The axes of the panels, row by row.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_LOOK):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.suptitle(textwrap.fill(title, 78), x=0.01, ha="left", fontsize=12, fontweight="bold")
        if note:
            figure.supxlabel(textwrap.fill(note, 118), x=0.01, ha="left", fontsize=8, color=QUIET)
        panels = list(figure.subplots(down, across, squeeze=False).flatten())
        yield panels
        name_lines(*panels)
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        _save(figure, path, says or {}, colours)


def _save(figure: Any, path: Path | io.BytesIO, says: Mapping[str, str], colours: int) -> None:
    """Write a figure with a palette: a third of the bytes, and no difference that is seen."""
    from PIL import Image, PngImagePlugin

    full = io.BytesIO()
    figure.savefig(full, format="png", dpi=DPI)
    carried = PngImagePlugin.PngInfo()
    for name, text in says.items():
        carried.add_text(name, text)
    with Image.open(full) as image:
        small = image.convert("RGB").quantize(colours)
    small.save(path, "PNG", optimize=True, pnginfo=carried)


def shades() -> Any:
    """The colours of a map: `SHADES` and what is between them."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shades", SHADES)


def bare(axes: Any, title: str = "") -> None:
    """Make a panel that of an image: no ticks and no grid, the title above it."""
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=9.5)


def look(number: int, of: int = 1) -> dict[str, Any]:
    """Colour, marker and width of one of several lines.

    Args:
        number: Which one, from 0.
        of: How many there are: earlier ones are wider, so that one under another shows at its rim.
    """
    turn, place = divmod(number, len(COLOURS))
    return {
        "color": COLOURS[place],
        "marker": MARKERS[place],
        "linestyle": ("-", "--", ":")[turn % 3],
        "linewidth": 1.8 + 0.7 * max(of - 1 - number, 0),
        "markersize": 6 + 0.8 * max(of - 1 - number, 0),
    }


def name_lines(*panels: Any) -> None:
    """Write the label of each line of axes of a figure beside its last point, apart from others.

    A line that ends before others do has its label at the side of its end where it is not itself:
    above where it rises, below where it falls or where no line is.
    """
    panels[0].figure.draw_without_rendering()
    for axes in panels:
        _name_lines(axes)


def _name_lines(axes: Any) -> None:
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    drawn = {line: dots for line in lines if len(dots := _dots(axes, line))}
    last = max((dots[-1, 0] for dots in drawn.values()), default=0)
    beside = [line for line, dots in drawn.items() if dots[-1, 0] == last]
    scale = 72 / axes.figure.dpi
    places = apart([float(drawn[line][-1, 1]) for line in beside], 11.5 / scale)
    for line, place in zip(beside, places, strict=True):
        end = drawn[line][-1]
        _label(axes, line, end, 8, (place - end[1]) * scale, ha="left", va="center")
    for line in drawn.keys() - set(beside):
        end = drawn[line][-1]
        lowest = all(_height(dots, end[0]) >= end[1] for dots in drawn.values())
        falls = len(drawn[line]) > 1 and drawn[line][-2, 1] > end[1]
        ha = "left" if lowest and not falls else "right"
        below = lowest or falls
        _label(axes, line, end, 0, -8 if below else 8, ha=ha, va="top" if below else "bottom")


def _label(axes: Any, line: Any, end: Any, right: float, up: float, **where: str) -> None:
    """The label of a line, in points from its end, which is given where it is drawn."""
    axes.annotate(
        line.get_label(),
        xy=axes.transData.inverted().transform(end),
        xytext=(right, up),
        textcoords="offset points",
        fontsize=9,
        color=_dark(line.get_color()),
        annotation_clip=False,
        **where,
    )


def _dots(axes: Any, line: Any) -> Any:
    """The points of a line where they are drawn [N,2], those that are no numbers left out."""
    import numpy as np

    points = np.column_stack([line.get_xdata(orig=False), line.get_ydata(orig=False)])
    return axes.transData.transform(points[np.isfinite(points).all(1)])


def _height(points: Any, x: float) -> float:
    """Where a line of points is drawn at x; infinity where it is not."""
    import numpy as np

    if not points[0, 0] <= x <= points[-1, 0]:
        return math.inf
    return float(np.interp(x, points[:, 0], points[:, 1]))


def apart(places: Sequence[float], gap: float) -> list[float]:
    """The nearest places, in the same order, that keep a gap from each other."""
    order = sorted(range(len(places)), key=places.__getitem__)
    # neighbours that touch, as (sum of their wanted starts, how many), merged while they overlap
    groups: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        groups.append((places[index] - rank * gap, 1))
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            (total, members), (more, others) = groups.pop(), groups.pop()
            groups.append((total + more, members + others))
    starts = [total / members for total, members in groups for _ in range(members)]
    moved = [0.0] * len(places)
    for rank, (index, start) in enumerate(zip(order, starts, strict=True)):
        moved[index] = start + rank * gap
    return moved


def plain(value: float, _position: int | None = None) -> str:
    """A number as people read it: 0.5, 224, 4096, 16 384, 2 M."""
    for unit, letter in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:g} {letter}"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 10_000 else f"{value:g}"


def log_axis(axis: Any, ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic with plain ticks: at these values, or at 1, 2, 5, 10 and so on."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_data_interval()
    times = high / low if low > 0 else 1.0
    subs = (1,) if times > 2000 else (1, 2, 5) if times > 5 else range(1, 10)
    axis.set_major_locator(FixedLocator(list(ticks)) if ticks else LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))


def _dark(colour: Any) -> str:
    """A colour for text on white: darker than that of a line."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = to_rgb(colour)
    return str(to_hex((0.62 * red, 0.62 * green, 0.62 * blue)))
