"""Say what the package brings: `python -m vit_ls`."""

import sys

from timm import list_models

from vit_ls import __version__, models

_COMMANDS = """\
commands of the package:
  python -m vit_ls.export      write ONNX, torch.export or AOTInductor files, checked

commands of the source checkout, which are not installed:
  python train.py              train a classifier
  python validate.py           evaluate one
  python publish.py            make a folder for the Hugging Face Hub of a checkpoint
  python -m robustness         ImageNet-C, A, R, 9 and others
  python -m benchmarks.speed   time the models
"""


def overview() -> str:
    """The version, the names of the models by family, and the commands."""
    families = "\n".join(
        f"  {family}: {' '.join(list_models(module=family))}" for family in models.__all__
    )
    return f"vit_ls {__version__}\n\nmodels for timm.create_model:\n{families}\n\n{_COMMANDS}"


if __name__ == "__main__":
    sys.stdout.write(overview())
