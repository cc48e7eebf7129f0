"""A report as one page of HTML that needs nothing else: tables, curves, leaderboard, images."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from PIL import Image

from robustness.reporting.comparison import Row, differences, headlines, side_by_side
from robustness.reporting.report import GATES_HEAD, gate_rows, origin_of
from robustness.rules.metrics import corruptions_of, severity_errors
from robustness.rules.results import Report

_FOLDER = Path(__file__).parent
_COLOURS = ("#2f78c4", "#d1662f", "#3f9a57", "#b0449b", "#8a7a1f", "#6a5acd", "#0f9aa6", "#c23b4b",
            "#7a5230", "#708090")  # fmt: skip
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_WIDE, _TALL, _EDGE = 160, 90, 18


@dataclass(frozen=True)
class WorstImage:
    """An image that a model got wrong.

    Attributes:
        title: Of the cell that it is of.
        caption: What it is, and what the model said.
        picture: The image.
    """

    title: str
    caption: str
    picture: Image.Image


def to_html(
    reports: Sequence[Report], names: Sequence[str], worst: Sequence[WorstImage] = ()
) -> str:
    """The page. The same reports give the same bytes, and the browser is told to load nothing.

    Args:
        reports: One or many.
        names: Of the reports.
        worst: Images to show at the end.
    """
    rows = side_by_side(reports)
    title = f"Robustness of {names[0]}" if len(names) == 1 else f"Robustness of {len(names)} models"
    headline = headlines(rows)
    parts = [f"<h1>{escape(title)}</h1>", *_models(reports, names)]
    if any(report.incomplete for report in reports):
        parts.append("<p><strong>Incomplete: see Gaps. What is withheld is a dash.</strong></p>")
    parts += _of_gates(reports, names)
    parts.append("<h2>Headline</h2>" + _table(headline, names))
    if len(names) > 1:
        parts.append("<h2>Leaderboard</h2>" + _leaderboard(headline, names))
    for benchmark in dict.fromkeys(r.benchmark for report in reports for r in report.results):
        parts += _corruptions(reports, names, benchmark)
    parts.append("<h2>All numbers</h2>" + _table(rows, names))
    parts += _worst(worst)
    parts.append("<h2>How</h2>" + _list(_how(reports, names)))
    parts.append("<h2>Gaps</h2>" + _list(_gaps(reports, names)))
    style, script = ((_FOLDER / name).read_text() for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<script>\n{script}</script>\n</body></html>\n"
    )


def _models(reports: Sequence[Report], names: Sequence[str]) -> Iterator[str]:
    for report, name in zip(reports, names, strict=True):
        model = report.model
        arguments = ", ".join(f"{k}={v}" for k, v in model["arguments"].items()) or "no arguments"
        weights = f"{origin_of(model)} {model['weights'][:16]}, {model['dtype']}"
        yield f"<p>{escape(f'{name}: {weights}, {arguments}')}</p>"


def _of_gates(reports: Sequence[Report], names: Sequence[str]) -> Iterator[str]:
    for report, name in zip(reports, names, strict=True):
        if not report.gates:
            continue
        yield f"<h2>Gates of {escape(name)}</h2>"
        head = "".join(f"<th>{word}</th>" for word in GATES_HEAD)
        body = "".join(
            f'<tr><td class="{word.lower()}">{word}</td>'
            f"<td>{escape(asked)}</td><td>{escape(found)}</td></tr>"
            for word, asked, found in gate_rows(report)
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        yield f'<div class="scroll">{table}</div>'


def _better(row: Row) -> str:
    return "lower" if any(m and m.lower_is_better for m in row.found) else "higher"


def _best(row: Row) -> float | None:
    """The best of several comparable values."""
    values = [m.value for m in row.found if m and m.value is not None]
    if len(values) < 2 or row.differs:
        return None
    return min(values) if _better(row) == "lower" else max(values)


def _number(row: Row, place: int, best: float | None) -> str:
    metric = row.found[place]
    if metric is None or metric.value is None:
        note = "" if metric is None else escape(metric.note, quote=True)
        return f'<td class="number" data-value="" title="{note}">-</td>'
    interval = "" if metric.low is None else f"{metric.low:.2f} to {metric.high:.2f}"
    kind = "number best" if metric.value == best else "number"
    return (
        f'<td class="{kind}" data-value="{metric.value!r}" title="{interval}">'
        f"{metric.value:.2f}</td>"
    )


def _table(rows: Sequence[Row], names: Sequence[str]) -> str:
    heads = ("benchmark", "number, %", "better", *names, "note")
    body = []
    for row in rows:
        best = _best(row)
        cells = "".join(_number(row, place, best) for place in range(len(names)))
        withheld = sorted({m.note for m in row.found if m and m.value is None and m.note})
        note = "; ".join(dict.fromkeys([*filter(None, [row.note]), *withheld]))
        kind = ' class="odd"' if row.differs else ""
        body.append(
            f"<tr><td>{escape(row.benchmark)}</td><td>{escape(row.name)}</td><td>{_better(row)}</td>"
            f"{cells}<td{kind}>{escape(note)}</td></tr>"
        )
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _leaderboard(rows: Sequence[Row], names: Sequence[str]) -> str:
    """A row for each model; a click on a head sorts by it, the best first."""
    head = '<th aria-sort="none"><button>model</button></th>'
    for row in rows:
        mark = " *" if row.differs else ""
        head += (
            f'<th aria-sort="none" data-better="{_better(row)}"><button>{escape(row.benchmark)}<br>'
            f"{escape(row.name)}{mark}</button></th>"
        )
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(_number(row, place, _best(row)) for row in rows)
        + "</tr>"
        for place, name in enumerate(names)
    )
    odd = [row for row in rows if row.differs]
    foot = "<p>* not comparable: see the headline table.</p>" if odd else ""
    return (
        f'<div class="scroll"><table id="leaderboard"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{foot}"
    )


def _corruptions(reports: Sequence[Report], names: Sequence[str], benchmark: str) -> Iterator[str]:
    found = [report.result(benchmark) for report in reports]
    corruptions = list(dict.fromkeys(c for r in found if r for c in corruptions_of(r)))
    if not corruptions:
        return
    differs = differences([r for r, own in zip(reports, found, strict=True) if own], benchmark)
    odd = f" (not comparable: other {', '.join(differs)})" if differs else ""
    yield f"<h2>{escape(benchmark)}: top-1 error by severity{odd}</h2>"
    keys = "".join(
        f'<li style="--colour: {_COLOURS[k % len(_COLOURS)]}">{escape(name)}</li>'
        for k, name in enumerate(names)
    )
    yield f'<ul class="key">{keys}</ul><div class="charts">'
    for corruption in corruptions:
        errors = [severity_errors(r, corruption) if r else [] for r in found]
        yield f"<figure>{_curves(errors)}<figcaption>{escape(corruption)}</figcaption></figure>"
    yield "</div>"
    for result, name in zip(found, names, strict=True):
        if result:
            yield f"<h3>{escape(name)}</h3>" if len(names) > 1 else ""
            yield _heat({c: severity_errors(result, c) for c in corruptions})


def _curves(errors: Sequence[Sequence[float | None]]) -> str:
    """Lines of error over severity, 0 to 100 %; a cell that is withheld breaks its line."""
    steps = max(len(own) for own in errors)
    parts = [
        f'<svg viewBox="0 0 {_WIDE} {_TALL}" role="img">',
        f'<path class="axis" d="M{_EDGE} 5V{_TALL - 14}H{_WIDE - 4}"/>',
        f'<text x="1" y="11">100</text><text x="9" y="{_TALL - 13}">0</text>',
        f'<text x="{_EDGE}" y="{_TALL - 3}">1</text>',
        f'<text x="{_WIDE - 9}" y="{_TALL - 3}">{steps}</text>',
    ]
    for place, own in enumerate(errors):
        colour = _COLOURS[place % len(_COLOURS)]
        path, drawing = "", False
        for step, error in enumerate(own):
            if error is None:
                drawing = False
                continue
            x = _EDGE + (_WIDE - _EDGE - 6) * (step / max(steps - 1, 1))
            y = 5 + (_TALL - 19) * (1 - error / 100)
            path += f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.6" fill="{colour}"/>')
            drawing = True
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "".join(parts) + "</svg>"


def _heat(errors: dict[str, list[float | None]]) -> str:
    steps = max(len(own) for own in errors.values())
    head = "<th>corruption</th>" + "".join(f"<th>{step + 1}</th>" for step in range(steps))
    body = ""
    for name, own in errors.items():
        cells = "".join(
            '<td class="number">-</td>' if e is None
            else f'<td class="number heat" style="--share: {e / 125:.3f}">{e:.1f}</td>'
            for e in own
        )  # fmt: skip
        body += f"<tr><td>{escape(name)}</td>{cells}</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _worst(worst: Sequence[WorstImage]) -> Iterator[str]:
    for title in dict.fromkeys(image.title for image in worst):
        yield f'<h2>{escape(title)}</h2><div class="worst">'
        for image in (image for image in worst if image.title == title):
            yield (
                f'<figure><img alt="" src="data:image/png;base64,{_png(image.picture)}">'
                f"<figcaption>{escape(image.caption)}</figcaption></figure>"
            )
        yield "</div>"


def _png(picture: Image.Image) -> str:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return base64.b64encode(content.getvalue()).decode()


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if lines else "<p>None.</p>"


def _how(reports: Sequence[Report], names: Sequence[str]) -> list[str]:
    return [
        f"{name}, {r.benchmark} ({r.folder}; {r.label}): {r.transform}"
        for report, name in zip(reports, names, strict=True)
        for r in report.results
    ]


def _gaps(reports: Sequence[Report], names: Sequence[str]) -> list[str]:
    lines = []
    for report, name in zip(reports, names, strict=True):
        for result in report.results:
            lines += [f"{name}, {result.benchmark}: {gap}" for gap in result.all_gaps()]
            lines += [f"{name}, {result.benchmark}: note: {n}" for n in result.all_notes()]
        lines += [f"{name}, {benchmark}: {where}" for benchmark, where in report.absent.items()]
    return lines
