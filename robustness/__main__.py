"""Evaluate a model on ImageNet-C, A, R, 9 and others: `python -m robustness`."""

from robustness.errors import ending
from vit_ls.job import end_process


def _run() -> int:
    # Imported here, so that Ctrl-C is answered alike in the seconds that it takes.
    from robustness.cli import main

    return main()


if __name__ == "__main__":
    end_process(ending("python -m robustness", _run))
