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

from robustness.errors import UsageError

_TYPES = {"label": np.int32, "predicted": np.int32, "confidence": np.float32, "rank": np.int32}


@dataclass(frozen=True)
class Table:
    """One row for each image of a cell, in the order of its listing.

    Attributes:
        names: Names of the images within the cell.
        label: Class that is right, in the benchmark's numbering.
        predicted: Class that was said, -1 for none.
        confidence: Softmax of the best class among those that compete.
        rank: Classes ahead of the right one; 0 is right.
    """

    names: tuple[str, ...]
    label: NDArray[np.int32]
    predicted: NDArray[np.int32]
    confidence: NDArray[np.float32]
    rank: NDArray[np.int32]

    @classmethod
    def of(cls, names: Sequence[str], columns: dict[str, Any]) -> "Table":
        """Make one of columns in any type of number."""
        typed: dict[str, Any] = {
            name: np.asarray(columns[name]).astype(kind) for name, kind in _TYPES.items()
        }
        return cls(tuple(names), **typed)

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
    columns = {name: getattr(table, name) for name in _TYPES}
    if pyarrow is None:
        np.savez_compressed(content, allow_pickle=False, name=np.array(table.names), **columns)
    else:
        rows = pyarrow.table({"name": list(table.names), **columns})
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
                columns = {name: file[name] for name in ("name", *_TYPES)}
        except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(str(error)) from error
        return Table.of(columns["name"].tolist(), columns)
    if pyarrow is None:
        raise UsageError("predictions in Parquet need pyarrow: pip install pyarrow")
    try:
        rows = pyarrow.parquet.read_table(io.BytesIO(content))
        return Table.of(rows["name"].to_pylist(), {name: rows[name].to_numpy() for name in _TYPES})
    except (pyarrow.ArrowException, KeyError) as error:
        raise ValueError(str(error)) from error


def digest(content: bytes) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(content).hexdigest()


def file_of(folder: Path, benchmark: str, cell: str, kind: str) -> Path:
    """Where the predictions of a cell lie under a report's folder."""
    return folder / "predictions" / benchmark / f"{cell.replace('/', '_')}.{kind}"


def read(folder: Path, benchmark: str, cell: str) -> Table:
    """The predictions of one cell of a report.

    Raises:
        UsageError: They are not there or damaged.
    """
    for kind in ("parquet", "npz"):
        file = file_of(folder, benchmark, cell, kind)
        if file.exists():
            try:
                return decode(file.read_bytes(), kind)
            except (OSError, ValueError) as error:
                raise UsageError(f"{file} is damaged: {error}") from error
    raise UsageError(f"{folder} has no predictions of {benchmark} {cell}.")
