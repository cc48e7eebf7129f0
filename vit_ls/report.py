"""Compare runs on one page: `python -m vit_ls.report output/ONE output/OTHER`.

Draws losses, accuracies, learning rate and speed by epoch, side by side, into one HTML file without
anything outside of it. It says what each run was made with, and which settings differ.
"""

import argparse
import base64
import io
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from vit_ls import job
from vit_ls.config import ConfigError, yaml_entries
from vit_ls.errors import CheckpointError, check_packages
from vit_ls.run.folder import CONFIG, STARTS, SUMMARY, TIMING, read_rows, read_starts
from vit_ls.style import look, picture
from vit_ls.whole import write_whole

_CURVES = {
    "train_loss": "Training loss",
    "eval_loss": "Held-out loss",
    "eval_top1": "Held-out top-1 (%)",
    "eval_ema_top1": "Held-out top-1 of the average (%)",
    "lr": "Learning rate",
    "grad_norm": "Gradient norm before clipping",
    "images_s": "Images per second",
}
"""Columns of a run's tables that are drawn, where a run has them, and what they are."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .7rem; text-align: left }
img { max-width: 100%; height: auto } code { overflow-wrap: anywhere }
"""


class Finished(NamedTuple):
    """What a run's folder says of it.

    Attributes:
        name: Of the run on the page.
        path: Its folder.
        settings: Its configuration.
        rows: Its tables by epoch: the summary, and the times.
        starts: What each of its starts was made with.
    """

    name: str
    path: Path
    settings: dict[str, Any]
    rows: list[dict[str, float]]
    starts: list[dict[str, Any]]

    @property
    def asked(self) -> int | None:
        """Epochs that were asked for."""
        epochs = self.settings.get("stop_epoch") or self.settings.get("epochs")
        return epochs if isinstance(epochs, int) else None

    def curve(self, column: str) -> tuple[list[float], list[float]]:
        """Epochs, from 1, and values of a column, where there are finite ones."""
        found = [(row["epoch"] + 1, row[column]) for row in self.rows if column in row]
        finite = [(epoch, value) for epoch, value in found if math.isfinite(value)]
        return [epoch for epoch, _ in finite], [value for _, value in finite]


def read_runs(folders: Sequence[Path]) -> list[Finished]:
    """What the folders of runs say.

    Raises:
        ConfigError: A folder is named twice or holds no run, or a table of it is damaged.
    """
    places = [folder.resolve() for folder in folders]
    twice = next((place for place, count in Counter(places).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} must be named once.")
    return [_read(folder, name) for folder, name in zip(folders, _names(places), strict=True)]


def _names(places: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of those above them as tell them apart."""
    parts = [place.parts for place in places]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read(folder: Path, name: str) -> Finished:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder.")
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} holds no run: it has no {CONFIG}.")
    settings = {key: value for key, value, _ in yaml_entries(folder / CONFIG, "the run's")}
    rows = {row["epoch"]: row for row in _numbers(folder / SUMMARY)}
    for row in _numbers(folder / TIMING):
        # Times are of no importance to a run, which may have gone on without their table.
        if row["epoch"] in rows:
            rows[row["epoch"]] |= row
    return Finished(name, folder, settings, list(rows.values()), read_starts(folder / STARTS))


def _numbers(path: Path) -> list[dict[str, float]]:
    rows = read_rows(path)
    for number, row in enumerate(rows, 2):
        if "epoch" not in row:
            raise ConfigError(f"{path} line {number} must have an epoch.")
    try:
        return [{name: float(value) for name, value in row.items()} for row in rows]
    except ValueError as error:
        raise ConfigError(f"{path} must hold numbers: {error}.") from error


def write_report(runs: Sequence[Finished], path: Path) -> None:
    """Write the page of some runs.

    Raises:
        ConfigError: No run has finished an epoch, or the file cannot be written.
    """
    if not any(run.rows for run in runs):
        names = ", ".join(run.name for run in runs)
        raise ConfigError(f"there is nothing to draw: no epoch is finished of {names}.")
    title = ", ".join(run.name for run in runs)
    pictures = "\n".join(
        f'<img alt="{escape(what)}" src="data:image/png;base64,{_curve(runs, column, what)}">'
        for column, what in _CURVES.items()
        if any(run.curve(column)[0] for run in runs)
    )
    text = (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n{_results(runs)}\n{pictures}\n"
        f"<h2>Settings that differ</h2>\n{_settings(runs)}\n"
        f"<h2>What they were made with</h2>\n{_starts(runs)}\n</html>\n"
    )
    try:
        write_whole(path, lambda file: file.write(text.encode()))
    except (CheckpointError, OSError) as error:
        raise ConfigError(f"--output {path} cannot be written: {error}") from error


def _curve(runs: Sequence[Finished], column: str, what: str) -> str:
    """A picture of one column of all runs that have it, in base64."""
    content = io.BytesIO()
    drawn = [(number, run) for number, run in enumerate(runs) if run.curve(column)[0]]
    with picture(content, what, height=3.6) as (axes,):
        for number, run in drawn:
            axes.plot(*run.curve(column), label=run.name, **look(number, len(runs)))
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    return base64.b64encode(content.getvalue()).decode()


def _results(runs: Sequence[Finished]) -> str:
    head = ("run", "model", "epochs", "best top-1 (%)", "at epoch", "images/s")
    return _table(head, ([_cell(run.name), *_result(run)] for run in runs))


def _result(run: Finished) -> list[str]:
    done, asked = len(run.rows), run.asked
    epochs = f"{done} of {asked}, unfinished" if asked and done < asked else f"{done}"
    tops = [run.curve(column) for column in ("eval_top1", "eval_ema_top1")]
    pairs = [pair for curve in tops for pair in zip(*curve, strict=True)]
    epoch, top1 = max(pairs, key=lambda pair: pair[1], default=(math.nan, math.nan))
    speeds = run.curve("images_s")[1]
    best = ["not evaluated", ""] if math.isnan(top1) else [f"{top1:.2f}", f"{epoch:.0f}"]
    speed = f"{sum(speeds) / len(speeds):.4g}" if speeds else "not measured"
    return list(map(_cell, (run.settings.get("model", ""), epochs, *best, speed)))


def _settings(runs: Sequence[Finished]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.settings)
    differ = [n for n in names if len({repr(run.settings.get(n)) for run in runs}) > 1]
    if not differ:
        return "<p>None.</p>"
    rows = ([_cell(n), *(_cell(run.settings.get(n, "")) for run in runs)] for n in differ)
    return _table(("setting", *(run.name for run in runs)), rows)


def _starts(runs: Sequence[Finished]) -> str:
    rows = []
    for run in runs:
        for start in run.starts:
            at = f"epoch {start.get('epoch')}, batch {start.get('batch')}"
            command = " ".join(map(str, start.get("command") or []))
            words = (start.get("time"), at, _made_with(start))
            rows.append([_cell(run.name), *map(_cell, words), f"<code>{escape(command)}</code>"])
        if not run.starts:
            rows.append([_cell(run.name), _cell("not known"), "", "", ""])
    return _table(("run", "started", "from", "with", "command"), rows)


def _made_with(start: dict[str, Any]) -> str:
    """Versions, hardware, checkout and data of a start, in words."""
    git, data, on = (start.get(name) or {} for name in ("git", "data", "hardware"))
    versions = (f"{name} {value}" for name, value in (start.get("versions") or {}).items())
    commit = f"commit {git['commit'][:12]}" if git.get("commit") else "no commit known"
    listing = f", listing {data['listing'][:12]}" if data.get("listing") else ""
    return "; ".join(
        (
            ", ".join(versions),
            f"{start.get('processes')} x {on.get('device')} on {on.get('host')}",
            commit + " with changes" * bool(git.get("changed")),
            f"{data.get('images') or 'streamed'} images{listing}",
        )
    )


def _cell(value: Any) -> str:
    return escape(str(value))


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<table><tr>{names}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def main(argv: Sequence[str] | None = None) -> None:
    """Write the page that a command line asks for."""
    parser = argparse.ArgumentParser(
        "vit_ls.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, nargs="+", help="folder of a run of train.py")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page; default: report.html",
    )
    args = parser.parse_args(argv)
    check_packages("the report", "matplotlib", extra="train")
    runs = read_runs(args.run)
    write_report(runs, args.output)
    sys.stdout.write(f"wrote {args.output}: {', '.join(run.name for run in runs)}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("vit_ls.report", main))
