"""One typed configuration from a YAML file and flags.

A setting is one row (`rows`) of `shared`, `training` (with `augmentation` and `optimisation`) or
`validation`; `foreign` says what of timm's is left out, `reading` makes a configuration of a file
and flags, `changes` compares it with that of a run to continue. A leaf: it imports nothing but
errors.
"""

from dataclasses import asdict

from vit_ls.config.changes import checked_changes, former
from vit_ls.config.nearest import nearest
from vit_ls.config.reading import Parser, dump, inherit, read, yaml_entries
from vit_ls.config.rows import ConfigError
from vit_ls.config.shared import WEIGHTS, WEIGHTS_HELP, DataConfig
from vit_ls.config.training import TrainConfig
from vit_ls.config.validation import ValidateConfig
from vit_ls.config.values import mapping

__all__ = [
    "WEIGHTS",
    "WEIGHTS_HELP",
    "ConfigError",
    "DataConfig",
    "Parser",
    "TrainConfig",
    "ValidateConfig",
    "asdict",
    "checked_changes",
    "dump",
    "former",
    "inherit",
    "mapping",
    "nearest",
    "read",
    "yaml_entries",
]
