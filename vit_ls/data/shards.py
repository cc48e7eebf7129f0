"""WebDataset shards, as far as timm's reader does not look at them before it streams."""

from itertools import islice
from pathlib import Path
from typing import Any

from vit_ls.config import ConfigError


def check_input_key(reader: Any, given: str | None) -> None:
    """Check that the first sample of the first shard has an image under the reader's key.

    timm's reader passes over samples without one, and of a training split it would look for the
    first image for ever. Only shards on a disk are looked at.

    Args:
        reader: timm's, of a WebDataset.
        given: The key that was asked for; None is the reader's own.

    Raises:
        ConfigError: It has none.
    """
    shard = Path(reader.root) / reader.split_info.filenames[0]
    if not shard.is_file():
        return
    import webdataset

    samples = webdataset.WebDataset(str(shard), shardshuffle=False, empty_check=False)
    found = {key for sample in islice(samples, 1) for key in sample if not key.startswith("__")}
    if not found & set(reader.input_key.split(";")):
        key = f"--input-key {given}" if given else f"--input-key (its default, {reader.input_key})"
        raise ConfigError(f"{key} must be one of {', '.join(sorted(found))}, as in {shard.name}.")
