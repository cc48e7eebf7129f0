"""Print the lowest allowed version of each dependency in setup.cfg, as constraints for pip."""

import configparser
import re
import sys
from pathlib import Path

_BOUND = re.compile(r"^([A-Za-z0-9_.-]+)>=([0-9][0-9A-Za-z.]*)$", re.MULTILINE)


def lowest(setup: Path) -> dict[str, str]:
    """The lower bound of every dependency, those of the extras included."""
    parser = configparser.ConfigParser()
    parser.read(setup, encoding="utf-8")
    listed = [parser["options"]["install_requires"], *parser["options.extras_require"].values()]
    return {name: version for text in listed for name, version in _BOUND.findall(text.strip())}


if __name__ == "__main__":
    bounds = lowest(Path(__file__).parents[1] / "setup.cfg")
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(bounds.items()))
