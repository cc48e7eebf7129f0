"""One typed configuration from a YAML file and flags.

`schema` says what can be set, `reading` makes a configuration of it. A leaf: imports nothing of the
package.
"""

from dataclasses import asdict

from vit_ls.config.reading import Parser, dump, inherit, nearest, read
from vit_ls.config.schema import ConfigError, DataConfig, TrainConfig, ValidateConfig

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
