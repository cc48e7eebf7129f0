"""Private names of torch, timm and torchvision in the code: `python .ci/private_names.py`.

docs/evidence/private_names.md says of each what it is for and what breaks where it is gone.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "timm", "torchvision")
ROOMS = ("vit_ls", "robustness", "papers", "benchmarks", "publish.py", "train.py", "validate.py")
_OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")


def files() -> Iterator[Path]:
    """The Python files of the rooms."""
    for room in ROOMS:
        place = ROOT / room
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def private_names(tree: ast.AST) -> Iterator[str]:
    """Dotted names of the packages in which a part begins with one underscore."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                known[one.asname or one.name.partition(".")[0]] = (
                    one.name if one.asname else one.name.partition(".")[0]
                )
                yield from _if_private(one.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                name = f"{node.module}.{one.name}"
                known[one.asname or one.name] = name
                yield from _if_private(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            words = ast.unparse(node).split(".")
            if words[0] in known and all(word.isidentifier() for word in words):
                yield from _if_private(".".join([known[words[0]], *words[1:]]))


def private_members(tree: ast.AST) -> Iterator[str]:
    """Private attributes of objects that are not one's own: `reader._lazy_init`."""
    imported = {
        (one.asname or one.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr[:1] == "_" and node.attr[:2] != "__":
            owner = ast.unparse(node.value)
            root = owner.partition(".")[0].partition("(")[0]
            own = owner in ("self", "cls", "super()") or node.attr in _OF_NAMED_TUPLES
            if not own and root not in imported:
                yield node.attr


def _if_private(name: str) -> Iterator[str]:
    words = name.split(".")
    private = [i for i, word in enumerate(words) if word[:1] == "_" and word[:2] != "__"]
    if words[0] in PACKAGES and private:
        yield name


def used() -> dict[str, list[str]]:
    """Each private name and the files that use it; of names within names the longest."""
    found: dict[str, set[str]] = {}
    for file in files():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {*private_names(tree), *private_members(tree)}
        for name in names:
            if not any(other.startswith(f"{name}.") for other in names):
                found.setdefault(name, set()).add(file.relative_to(ROOT).as_posix())
    return {name: sorted(places) for name, places in sorted(found.items())}


if __name__ == "__main__":
    for name, places in used().items():
        sys.stdout.write(f"{name}  {', '.join(places)}\n")
