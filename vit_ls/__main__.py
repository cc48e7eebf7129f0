"""Say what the package brings: `python -m vit_ls`."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from timm import list_models

from vit_ls import __version__, models

_PACKAGE = Path(__file__).parent
_ROOMS = (".", "robustness", "papers", "benchmarks", "examples")
"""Of the checkout: where its commands are, beside the package."""

_GUARD = 'if __name__ == "__main__":'


def overview(root: Path | None = _PACKAGE.parent) -> str:
    """The version, the names of the models by family, and the commands.

    Args:
        root: Folder of the source checkout; where it is none, its commands are not listed.
    """
    families = "\n".join(
        f"  {family}: {' '.join(list_models(module=family))}" for family in models.__all__
    )
    installed = _table(_commands(_PACKAGE, _PACKAGE.parent))
    if root is not None and (root / "train.py").is_file():
        rooms = (root / room for room in _ROOMS)
        checkout = _table(command for room in rooms for command in _commands(room, root))
    else:
        checkout = "  python train.py, and more: `python -m vit_ls` lists them there"
    return (
        f"vit_ls {__version__}\n\nmodels for timm.create_model:\n{families}\n\n"
        f"commands of the package:\n{installed}\n\n"
        f"commands of the source checkout only, which are not installed:\n{checkout}\n"
    )


def _commands(folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """The commands in a folder, and what each does: the first line of its file's docstring."""
    files = folder.glob("*.py") if folder == root else folder.rglob("*.py")
    for file in sorted(files):
        text = file.read_text(encoding="utf-8")
        if file.name == "__main__.py" or _GUARD in text:
            says = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            yield _call(file, root), says.partition(": `")[0].rstrip(".")


def _call(file: Path, root: Path) -> str:
    path = file.relative_to(root).with_suffix("")
    if not (file.parent / "__init__.py").is_file():
        return f"python {file.relative_to(root).as_posix()}"
    return f"python -m {'.'.join(path.parts).removesuffix('.__main__')}"


def _table(commands: Iterator[tuple[str, str]]) -> str:
    rows = list(commands)
    width = max(len(call) for call, _ in rows)
    return "\n".join(f"  {call:{width}}  {says}" for call, says in rows)


if __name__ == "__main__":
    sys.stdout.write(overview())
