"""What a model said to each image of a cell, in one small file: Parquet, or npz without pyarrow."""

import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import pyarrow
    import pyarrow.parquet
except ModuleNotFoundError:
    pyarrow = None

from vit_ls.config import ConfigError

_OPTIONAL = ("flips", "top5_distance")
_TYPES = {"label": np.int32, "predicted": np.int32, "confidence": np.float32, "rank": np.int32,
          "flips": np.int32, "top5_distance": np.int32}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """One row for each image of a cell, in the order of its listing.

    Attributes:
        names: Names of the images within the cell.
        label: Class that is right, in the benchmark's numbering.
        predicted: Class that was said, -1 for none.
        confidence: Softmax of the best class among those that compete.
        rank: Classes ahead of the right one; 0 is right.
        flips: Of videos alone: changes of the answer. The columns above are of the first frame.
        top5_distance: Of videos alone: how far the five best classes moved, over all comparisons.
    """

    names: tuple[str, ...]
    label: NDArray[np.int32]
    predicted: NDArray[np.int32]
    confidence: NDArray[np.float32]
    rank: NDArray[np.int32]
    flips: NDArray[np.int32] | None = None
    top5_distance: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, names: Sequence[str], columns: dict[str, Any]) -> "Table":
        """Make one of columns in any type of number."""
        typed: dict[str, Any] = {
            name: np.asarray(columns[name]).astype(kind)
            for name, kind in _TYPES.items()
            if name in columns or name not in _OPTIONAL
        }
        return cls(tuple(names), **typed)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All that there are, but for the names."""
        every = {name: getattr(self, name) for name in _TYPES}
        return {name: column for name, column in every.items() if column is not None}

    @property
    def digest(self) -> str:
        """Of all that it holds, whatever file it came from."""
        whole = hashlib.sha256("\n".join(self.names).encode())
        for name, column in self.columns.items():
            whole.update(name.encode() + np.ascontiguousarray(column).tobytes())
        return whole.hexdigest()

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which images were classified as they should be."""
        return self.rank == 0


def suffix() -> str:
    """Of the files that are written here."""
    return "npz" if pyarrow is None else "parquet"


def encode(table: Table) -> bytes:
    """The file's bytes; the same table gives the same bytes."""
    content = io.BytesIO()
    if pyarrow is None:
        names = np.array(table.names)
        np.savez_compressed(content, allow_pickle=False, name=names, **table.columns)
    else:
        rows = pyarrow.table({"name": list(table.names), **table.columns})
        pyarrow.parquet.write_table(rows, content, compression="zstd")
    return content.getvalue()


def decode(content: bytes, kind: str) -> Table:
    """Inverse of `encode`.

    Args:
        content: The file's bytes.
        kind: "parquet" or "npz".

    Raises:
        ValueError: It is no such file.
    """
    if kind == "npz":
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                columns = {name: file[name] for name in file.files}
                names = columns["name"].tolist()
        except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(str(error)) from error
        return _table(names, columns)
    if pyarrow is None:
        raise ConfigError("predictions in Parquet need pyarrow: pip install pyarrow")
    try:
        rows = pyarrow.parquet.read_table(io.BytesIO(content))
        columns = {name: rows[name].to_numpy() for name in rows.column_names if name != "name"}
        names = rows["name"].to_pylist()
    except (pyarrow.ArrowException, KeyError) as error:
        raise ValueError(str(error)) from error
    return _table(names, columns)


def _table(names: list[str], columns: dict[str, Any]) -> Table:
    try:
        return Table.of(names, columns)
    except KeyError as error:
        raise ValueError(f"it lacks {error}") from error


def digest(content: bytes) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(content).hexdigest()


def file_of(folder: Path, benchmark: str, cell: str, kind: str) -> Path:
    """Where the predictions of a cell lie under a report's folder."""
    return folder / "predictions" / benchmark / f"{cell.replace('/', '_')}.{kind}"


def read(folder: Path, benchmark: str, cell: str) -> Table:
    """The predictions of one cell of a report.

    Raises:
        ConfigError: They are not there or damaged.
    """
    for kind in ("parquet", "npz"):
        file = file_of(folder, benchmark, cell, kind)
        if file.exists():
            try:
                return decode(file.read_bytes(), kind)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{file} is damaged: {error}") from error
    raise ConfigError(f"{folder} has no predictions of {benchmark} {cell}.")
