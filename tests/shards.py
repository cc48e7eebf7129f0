"""Writes WebDataset shards for tests."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

Sample = dict[str, bytes]
"""The files of a sample by their endings."""


def write_split(folder: Path, split: str, samples: Sequence[Sample], shards: int = 1) -> list[str]:
    """Deal samples out to shards and enter the split in the folder's `_info.json`.

    Returns:
        The names of the shards.
    """
    names = [f"digits-{split}-{number}.tar" for number in range(shards)]
    for place, name in enumerate(names):
        with tarfile.open(folder / name, "w") as archive:
            for number in range(place, len(samples), shards):
                for ending, content in samples[number].items():
                    entry = tarfile.TarInfo(f"{number:05d}.{ending}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    file = folder / "_info.json"
    info = json.loads(file.read_text()) if file.exists() else {"splits": {}}
    info["splits"][split] = {
        "name": split,
        "num_samples": len(samples),
        "filenames": names,
        "shard_lengths": [len(range(place, len(samples), shards)) for place in range(shards)],
    }
    file.write_text(json.dumps(info))
    return names
