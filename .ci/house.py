"""How heavy the house is: lines, rooms, the way of a forward pass, and what an addition touches.

    python .ci/house.py

Each row has its target; the status is 1 where one is missed. What an addition touches is counted on
something that is there: the files, beside tests, docs and data, in which its names stand. A model
or a suite with published numbers also has a row where those stand.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

ADDITIONS = {
    # what             names of one that is there                        where        at most
    "attention kind": (r"CompositeSlice|composite_slice", "vit_ls", 3),
    "model": (r"cst_vit_base_patch16_448", "vit_ls", 1),
    "suite": (r"imagenet-3dcc", "robustness", 1),
    "flag": (r"save_images", "", 2),
}
USERS = {
    "attention kind": (
        *("models/", "sequence/", "replace/"),
        *("vit_ls/__init__.py", "config/shared.py"),  # what `replace` puts into other models
    )
}
"""Rooms that use what is added: they are another addition."""


class Row(NamedTuple):
    """A measurement and its target."""

    what: str
    found: int
    at_most: int
    names: str = ""


def sources() -> list[Path]:
    """The Python files of the checkout beside its tests."""
    said = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [n for n in said.stdout.split() if not n.startswith("tests/") and n != ".ci/house.py"]
    files = [ROOT / name for name in names]
    return [file for file in files if file.is_file()]


def lines() -> Row:
    """Of all of them."""
    count = sum(len(file.read_text().splitlines()) for file in sources())
    return Row("lines beside the tests", count, 24_000)


def largest_room() -> Row:
    """The folder with the most files."""
    rooms = Counter(str(f.parent.relative_to(ROOT)) for f in sources() if f.name != "__init__.py")
    room, count = rooms.most_common(1)[0]
    return Row("files of the largest room", count, 12, room)


def forward_pass() -> list[Row]:
    """Files of the package that a forward of cvt_ls_21 visits, and its calls in them."""
    import timm
    import torch

    import vit_ls  # noqa: F401 - registers the models

    package = str(ROOT / "vit_ls")
    calls: Counter[str] = Counter()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            calls[frame.f_code.co_filename.removeprefix(package + "/")] += 1

    model, image = timm.create_model("cvt_ls_21").eval(), torch.zeros(1, 3, 224, 224)
    with torch.inference_mode():
        model(image)
        sys.setprofile(called)
        model(image)
        sys.setprofile(None)
    return [
        Row("files of a forward pass of cvt_ls_21", len(calls), 11, ", ".join(sorted(calls))),
        Row("Python calls in them", sum(calls.values()), 1100),
    ]


def additions() -> list[Row]:
    """Files that each kind of addition touches."""
    rows = []
    for what, (names, where, at_most) in ADDITIONS.items():
        found = [
            str(file.relative_to(ROOT))
            for file in sources()
            if file.is_relative_to(ROOT / where)
            and not any(user in str(file) for user in USERS.get(what, ()))
            and re.search(names, file.read_text())
        ]
        rows.append(Row(f"files of one more {what}", len(found), at_most, ", ".join(found)))
    return rows


def measured() -> list[Row]:
    """Every row."""
    return [lines(), largest_room(), *forward_pass(), *additions()]


def main() -> int:
    """Print the rows."""
    rows = measured()
    for what, found, at_most, names in rows:
        mark = "" if found <= at_most else "  MISSED"
        sys.stdout.write(f"{found:>7,} (at most {at_most:>6,})  {what}{mark}  {names}\n")
    return int(any(row.found > row.at_most for row in rows))


if __name__ == "__main__":
    sys.exit(main())
