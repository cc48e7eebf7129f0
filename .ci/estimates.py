"""Write what `train.py --estimate` says now into the head of each file in configs/.

python .ci/estimates.py [NAME ...]
"""

import re
import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(names: Sequence[str]) -> None:
    """Renew the line of these files, or of all."""
    sys.path.insert(0, str(ROOT))
    import train
    from vit_ls.config import TrainConfig, read
    from vit_ls.estimate import estimated, headline

    warnings.simplefilter("ignore")  # of tracing
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        if names and path.stem not in names:
            continue
        text = path.read_text()
        _, begin, rest = text.partition("# Estimate: ")
        said, _, tail = rest.partition(".\n")
        words = " ".join(line.lstrip("# ") for line in said.splitlines())
        command = words[words.index(" By `") :]
        gpus = re.findall(r"--estimate (\d+)`", command)[0]
        flags = ["--config", str(path), "--estimate", gpus]
        config, _ = read(train.parser, TrainConfig, flags)
        new = headline(estimated(train.create_model, config)) + command + "."
        lines = textwrap.wrap(
            new, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )
        before = text[: text.index(begin)]
        path.write_text(before + "\n".join(lines) + "\n" + tail)


if __name__ == "__main__":
    main(sys.argv[1:])
