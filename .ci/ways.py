"""The rooms of the code, and the way of one image, one update and one robustness cell through them.

    python .ci/ways.py            # prints what stands in docs/development.md
    python .ci/ways.py --write    # writes it there

Everything is read from the code: rooms from their docstrings, ways by watching a run.
"""

import argparse
import ast
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "development.md"
BEGIN, END = "<!-- made by .ci/ways.py -->", "<!-- end -->"
sys.path.insert(0, str(ROOT))

_INSIDE = tuple(f"vit_ls/{room}" for room in ("attention", "blocks", "ops", "grid"))
"""What a model enters."""

Way = list[tuple[str, str]]
"""File and function, in the order in which files are entered first."""


def rooms() -> Iterator[tuple[str, str]]:
    """Each room and the first sentence of its docstring."""
    places = [*sorted((ROOT / "vit_ls").iterdir()), *(ROOT / n for n in ("robustness", "papers"))]
    for place in (*places, ROOT / "benchmarks"):
        init = place / "__init__.py"
        if init.is_file():
            text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            yield place.relative_to(ROOT).as_posix() + "/", " ".join(text.split("\n\n")[0].split())


class Watch:
    """Notes the files of the project that a call enters, with the function by which it does."""

    def __init__(self) -> None:
        self.way: Way = []

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the call returns; the first call alone is noted."""
        seen: dict[str, str] = {}

        def entered(frame: FrameType, event: str, _: object) -> None:
            file = frame.f_code.co_filename
            if event == "call" and file.startswith(str(ROOT)) and file != __file__:
                place = Path(file).relative_to(ROOT).as_posix()
                seen.setdefault(place, frame.f_code.co_name)

        sys.setprofile(entered)
        try:
            return call(*args, **kwargs)
        finally:
            sys.setprofile(None)
            self.way = self.way or list(seen.items())


def way_of_an_image() -> Way:
    """A forward pass of CvT-LS."""
    import timm
    import torch

    import vit_ls  # noqa: F401 - registers the models

    watch = Watch()
    model = timm.create_model("test_cvt_ls").eval()
    with torch.inference_mode():
        watch(model, torch.zeros(1, 3, 32, 32))
    return watch.way


def way_of_an_update() -> Way:
    """The first update of `python train.py`."""
    import train
    from vit_ls.train.update import Updater

    watch, update = Watch(), Updater.__call__
    Updater.__call__ = lambda *args: watch(update, *args)  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            train.main(["--epochs", "1", "--output", folder])
    finally:
        Updater.__call__ = update  # type: ignore[method-assign]
    return watch.way


def way_of_a_cell() -> Way:
    """The first cell of the robustness suite on the digits."""
    import robustness.cli
    from robustness.running import run

    watch, cell = Watch(), run.run_cell
    run.run_cell = lambda *args: watch(cell, *args)
    argv = ["--model", "test_vil_ls", "--random-weights", "--num-classes", "10", "--img-size", "32"]
    argv += ["--suites", "digits", "--max-images", "1", "--workers", "0"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            argv += ["--cache", f"{folder}/cache", "--output", f"{folder}/report"]
            robustness.cli.main(argv)
    finally:
        run.run_cell = cell
    return watch.way


def page() -> str:
    """The part of the page, as Markdown."""
    lines = ["| room | what is in it |", "| --- | --- |"]
    lines += [f"| `{room}` | {says} |" for room, says in rooms()]
    of_model = way_of_an_image()
    for title, way in (
        ("one image takes (`model(image)`, CvT-LS)", of_model),
        (
            "one update takes (`python train.py`), less what a model enters",
            way_of_an_update(),
        ),
        ("one robustness cell takes (`python -m robustness`), likewise", way_of_a_cell()),
    ):
        lines += [
            "",
            f"The way that {title}:",
            "",
            "| | file | entered by |",
            "| ---: | --- | --- |",
        ]
        shown = [one for one in way if way is of_model or not one[0].startswith(_INSIDE)]
        lines += [f"| {i} | `{file}` | `{by}` |" for i, (file, by) in enumerate(shown, 1)]
    return "\n".join(lines)


def main() -> None:
    """Print the part of the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="into docs/development.md")
    write = parser.parse_args().write
    with contextlib.redirect_stdout(io.StringIO()):
        made = page()
    if not write:
        sys.stdout.write(made + "\n")
        return
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
