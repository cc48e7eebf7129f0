"""What is wrong with data, found while it is read."""

from vit_ls.config import ConfigError


class DataError(ConfigError):
    """The data cannot be used as the settings say; the message is one line that says where."""

    status = 1  # the run failed; unusable settings, which end it before it starts, are 2


class UnreadableImageError(RuntimeError):
    """An image cannot be read; the message names it and says why."""
