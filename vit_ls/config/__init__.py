"""One typed configuration from a YAML file and flags.

`schema` says what can be set, `foreign` what cannot, `reading` makes a configuration of it, and
`changes` says what of it may differ where a run is continued. A leaf: it imports nothing of the
package.
"""

from dataclasses import asdict

from vit_ls.config.changes import checked_changes, former
from vit_ls.config.nearest import nearest
from vit_ls.config.reading import Parser, dump, inherit, read, yaml_entries
from vit_ls.config.rules import ConfigError
from vit_ls.config.schema import (
    WEIGHTS,
    WEIGHTS_HELP,
    DataConfig,
    TrainConfig,
    ValidateConfig,
)
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
