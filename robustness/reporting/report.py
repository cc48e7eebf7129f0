"""Report files: JSON, CSV, Markdown. The same counts give the same bytes."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from robustness.files import write_atomically
from robustness.reporting.published import published
from robustness.rules.metrics import Metric, corruptions_of, metrics, severity_errors
from robustness.rules.results import Report, Result
from vit_ls.config import ConfigError
from vit_ls.style import markdown_table


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.json, .csv and .md.

    Returns:
        The files.
    """
    contents = {"json": to_json(report), "csv": to_csv(report), "md": to_markdown(report)}
    files = []
    for kind, text in contents.items():
        files.append(folder / f"report.{kind}")
        write_atomically(files[-1], text.encode())
    return files


def read_report(path: Path) -> Report:
    """Read report.json.

    Raises:
        ConfigError: It is not there, or is no report.
    """
    try:
        return Report.from_dict(json.loads(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a report.json of this suite.") from error


def to_json(report: Report) -> str:
    """Counts of every cell, gaps, and the numbers made from them."""
    numbers = [
        {
            "benchmark": m.benchmark,
            "name": m.name,
            "value": _rounded(m.value),
            "low": _rounded(m.low),
            "high": _rounded(m.high),
            "right": m.right,
            "images": m.images,
            "note": m.note,
            "lower_is_better": m.lower_is_better,
        }
        for m in metrics(report)
    ]
    return json.dumps(report.to_dict() | {"numbers": numbers}, indent=1) + "\n"


def to_csv(report: Report) -> str:
    """One line for each number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["model", "benchmark", "number", "percent", "low95", "high95", "right", "images", "note"]
    )
    for m in metrics(report):
        values = (_rounded(v) for v in (m.value, m.low, m.high))
        row = [report.model["name"], m.benchmark, m.name, *values, m.right, m.images, m.note]
        writer.writerow(row)
    return text.getvalue()


def to_markdown(report: Report) -> str:
    """Tables for people: every number with its interval and the published one beside it."""
    model = report.model
    parts = [
        f"# Robustness of {model['name']}",
        f"{origin_of(model)}, sha256 `{model['weights']}`, {model['dtype']}.",
        f"`{model['class']}`, arguments: {_arguments(model['arguments'])}.",
    ]
    if report.incomplete:
        parts.append("**Incomplete: what was asked for is not all there. See Gaps.**")
    if report.gates:
        parts.append("## Gates\n\n" + markdown_table(GATES_HEAD, gate_rows(report)))
    parts.append(markdown_table(_HEAD, [_row(report, m) for m in metrics(report)]))
    parts += [_severity_table(r) for r in report.results if corruptions_of(r)]
    parts.append("## How\n\n" + "\n".join(_how(r) for r in report.results))
    notes = [f"- {r.benchmark}: {note}" for r in report.results for note in r.all_notes()]
    if notes:
        parts.append("## Notes\n\n" + "\n".join(notes))
    gaps = [f"- {r.benchmark}: {gap}" for r in report.results for gap in r.all_gaps()]
    short = {r.benchmark for r in report.results if r.all_gaps()}
    gaps += [
        f"- {m.benchmark}, {m.name}: {m.note}"
        for m in metrics(report)
        if m.value is None and m.benchmark not in short
    ]
    gaps += [f"- {name}: {where}" for name, where in report.absent.items()]
    parts.append("## Gaps\n\n" + ("\n".join(gaps) or "None."))
    return "\n\n".join(parts) + "\n"


GATES_HEAD = ("gate", "fails if", "found")


def gate_rows(report: Report) -> list[list[str]]:
    """What became of each gate, in words."""
    words = {True: "FAILED", False: "passed"}
    return [[words[gate.failed], gate.asked, gate.found] for gate in report.gates]


def origin_of(model: dict[str, Any]) -> str:
    """Where a model's weights are from, and which of a checkpoint's they are, where it is said."""
    which = model.get("which")
    return f"{model['origin']} weights{f' ({which})' if which else ''}"


def _arguments(arguments: dict[str, str]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in arguments.items()) or "none"


_HEAD = ("benchmark", "number", "%", "95 % interval", "images", "published", "note")


def _row(report: Report, metric: Metric) -> list[str]:
    known = published(report.model["name"], metric.benchmark, metric.name)
    interval = "" if metric.low is None else f"{metric.low:.2f} to {metric.high:.2f}"
    return [
        metric.benchmark,
        metric.name,
        "-" if metric.value is None else f"{metric.value:.2f}",
        interval,
        "" if metric.images is None else f"{metric.right}/{metric.images}",
        "; ".join(f"{number.value:g} ({number.source})" for number in known),
        metric.note,
    ]


def _how(result: Result) -> str:
    how = "by their bytes" if result.verified else "by name and size"
    return (
        f"- {result.benchmark} ({result.folder}; {result.label}; images known {how}): "
        f"{result.transform}"
    )


def _severity_table(result: Result) -> str:
    rows = []
    for name in corruptions_of(result):
        errors = severity_errors(result, name)
        rows.append([name, *("-" if e is None else f"{e:.2f}" for e in errors)])
    title = f"## {result.benchmark}: top-1 error by severity ({result.label})"
    return title + "\n\n" + markdown_table(("corruption", *"12345"), rows)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
