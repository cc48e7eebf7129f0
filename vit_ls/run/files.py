"""Files that hold tensors: which kinds there are, and reading them without running their code."""

import argparse
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError, blamed_on

Kind = Literal["torch", "safetensors", "numpy"]

_NUMPY = (".npz", ".npy")
_HEADER = 9  # bytes: the length of a safetensors header, and its first character


def check_weights_file(flag: str, path: Path) -> None:
    """Raise ConfigError for what cannot be a file of weights, before a reader stumbles over it."""
    try:
        kind = _kind(path)
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}.") from error
    if kind is None:
        raise ConfigError(f"{flag} {path} is no file of weights.")


def is_numpy(path: Path) -> bool:
    """Whether a file holds arrays of NumPy's, which only some models of timm's can read."""
    return path.suffix.lower() in _NUMPY


def read_file(path: Path, *, tensors: bool = True) -> dict[str, Any]:
    """The content of a file by torch or safetensors; no code in it is run.

    Args:
        path: The file.
        tensors: Read the tensors too, and so find damage in them; otherwise they are left on disk,
            or, in a file of safetensors, which holds nothing else, left out.

    Raises:
        CheckpointError: It is not there, damaged, of no known kind, needs code to be read, or holds
            something else than names and values.
    """
    # A damaged file raises whatever the part of it raises that is read first.
    with blamed_on(f"{path} cannot be read", CheckpointError):
        if not path.is_file():
            raise CheckpointError(f"{path} cannot be read: no such file.")
        kind = _kind(path)
        if kind == "safetensors":
            content: Any = _safetensors(path) if tensors else {}
        elif kind == "torch":
            content = _torch(path, tensors)
        else:
            raise CheckpointError(f"{path} cannot be read: it is no file of torch or safetensors.")
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} must hold named tensors, got {type(content).__name__}.")
    return dict(content)


def _kind(path: Path) -> Kind | None:
    """By content, because names lie; NumPy's archives begin as torch's do."""
    with path.open("rb") as file:
        start = file.read(_HEADER)
    if is_numpy(path):
        return "numpy"
    # torch writes archives, and before those it wrote pickles.
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return "torch"
    return "safetensors" if start[8:] == b"{" else None


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def _torch(path: Path, tensors: bool) -> Any:
    archive = zipfile.is_zipfile(path)
    if tensors and archive:
        # torch does not look at the checksums that it writes.
        with zipfile.ZipFile(path) as opened:
            damaged = opened.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} in it is damaged.")
    # timm's script stores its settings as a namespace, which runs no code.
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=archive and not tensors
            )
    except pickle.UnpicklingError as error:
        if not str(error).startswith("Weights only load failed"):
            raise
        raise CheckpointError(
            f"{path} cannot be read without running code in it, which is not done."
        ) from error
