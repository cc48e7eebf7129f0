"""One typed configuration from a YAML file and flags.

`schema` says what can be set, `foreign` what cannot, `reading` makes a configuration of it. A leaf:
imports nothing of the package.
"""

from dataclasses import asdict

from vit_ls.config.nearest import nearest
from vit_ls.config.reading import Parser, dump, inherit, read
from vit_ls.config.rules import ConfigError
from vit_ls.config.schema import DataConfig, TrainConfig, ValidateConfig

__all__ = [
    "ConfigError",
    "DataConfig",
    "Parser",
    "TrainConfig",
    "ValidateConfig",
    "asdict",
    "dump",
    "inherit",
    "nearest",
    "read",
]
