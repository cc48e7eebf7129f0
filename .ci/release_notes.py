"""The text of a release, from CHANGELOG.md: `python .ci/release_notes.py 0.2.0`."""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(version: str) -> str:
    """What the changelog says of a version, without its heading.

    Raises:
        ValueError: It says nothing of it.
    """
    sections = re.split(r"^## ", CHANGELOG.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        if title.split()[0] == version:
            return text.strip() + "\n"
    known = ", ".join(section.split()[0] for section in sections)
    raise ValueError(f"version must be one of CHANGELOG.md, {known}, got {version!r}.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python .ci/release_notes.py VERSION")
    try:
        sys.stdout.write(notes(sys.argv[1]))
    except ValueError as error:
        sys.exit(str(error))
