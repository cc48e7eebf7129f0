"""Readers of the Long Range Arena's other data, in the files that their makers give out."""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from papers.sequence.data import Split, Task, read_as_table
from vit_ls.config import ConfigError
from vit_ls.data.digits import is_held_out

_GREY = (0.2989, 0.587, 0.114)
_BYTES = 257


def digits() -> Task:
    """scikit-learn's digits, 8 x 8, as 64 pixels in a row: ids 0 to 16, none of them padding."""
    from sklearn.datasets import load_digits

    found = load_digits()
    labels = torch.tensor(found.target)
    pixels = torch.tensor(found.images).flatten(1).to(torch.uint8)
    held_out = torch.from_numpy(is_held_out(found.target))
    train = Split(pixels[~held_out], labels[~held_out])
    test = Split(pixels[held_out], labels[held_out])
    source = "scikit-learn's digits; chosen and tested on the same held-out fifth"
    return Task(train, test, test, vocab_size=17, num_classes=10, pad_id=None, source=source)


def image(folder: Path) -> Task:
    """CIFAR-10 in grey, 1024 pixels in a row, by torchvision's files.

    Raises:
        ConfigError: They are not there.
    """
    from torchvision.datasets import CIFAR10

    try:
        train, test = (CIFAR10(str(folder), train=part) for part in (True, False))
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            "--data-dir must hold cifar-10-batches-py, the Python version of CIFAR-10 "
            f"(cifar-10-python.tar.gz, unpacked), got {folder}: {error}"
        ) from error
    pixels, labels = _grey(train.data), torch.tensor(train.targets)
    cut = len(labels) * 9 // 10
    return Task(
        Split(pixels[:cut], labels[:cut]),
        Split(pixels[cut:], labels[cut:]),
        Split(_grey(test.data), torch.tensor(test.targets)),
        vocab_size=256,
        num_classes=10,
        pad_id=None,
        source=str(folder),
    )


def text(folder: Path, *, max_length: int) -> Task:
    """IMDb reviews as bytes; the test reviews choose too, as in the Long Range Arena.

    Raises:
        ConfigError: They are not there.
    """
    splits = []
    for part in ("train", "test"):
        texts, labels = [], []
        for label, name in enumerate(("neg", "pos")):
            paths = sorted((folder / part / name).glob("*.txt"))
            if not paths:
                raise ConfigError(
                    "--data-dir must hold the IMDb reviews (aclImdb_v1.tar.gz, unpacked: "
                    f"train/pos, train/neg, test/pos, test/neg), got no {folder / part / name}."
                )
            texts += [path.read_bytes() for path in paths]
            labels += [label] * len(paths)
        splits.append(Split(byte_ids(texts, max_length), torch.tensor(labels), padded=True))
    return Task(
        splits[0], splits[1], splits[1], vocab_size=_BYTES, num_classes=2, source=str(folder)
    )


def retrieval(folder: Path, *, max_length: int) -> Task:
    """Pairs of papers of the ACL Anthology Network: does one cite what the other does?

    Raises:
        ConfigError: The files are not there, or of another task.
    """
    csv.field_size_limit(sys.maxsize)
    splits = []
    for part in ("train", "eval", "test"):
        path = folder / f"new_aan_pairs.{part}.tsv"
        if not path.is_file():
            raise ConfigError(
                "--data-dir must hold new_aan_pairs.train.tsv, .eval.tsv and .test.tsv of the Long "
                f"Range Arena's release (lra_release.gz, tsv_data), got no {path}."
            )
        labels, first, second = [], [], []
        with read_as_table(path), path.open(newline="", encoding="utf-8") as file:
            for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                if len(row) != 5 or row[0] not in ("0", "1", "0.0", "1.0"):
                    raise ConfigError(
                        f"{path} must have lines of a label 0 or 1, two names and two texts, got "
                        f"{len(row)} fields, the first {row[0][:40] if row else ''!r}."
                    )
                labels.append(int(float(row[0])))
                first.append(row[3].encode())
                second.append(row[4].encode())
        pair = torch.stack((byte_ids(first, max_length), byte_ids(second, max_length)), dim=1)
        splits.append(Split(pair, torch.tensor(labels), padded=True))
    train, valid, test = splits
    return Task(train, valid, test, vocab_size=_BYTES, num_classes=2, pair=True, source=str(folder))


def byte_ids(texts: Iterable[bytes], max_length: int) -> Tensor:
    """Bytes + 1, cut or padded with 0 to one length: int16 [texts,max_length]."""
    rows: Sequence[bytes] = [text[:max_length] for text in texts]
    ids = torch.zeros(len(rows), max_length, dtype=torch.int16)
    for row, kept in zip(ids, rows, strict=True):
        row[: len(kept)] = torch.tensor(list(kept), dtype=torch.int16) + 1
    return ids


def _grey(images: Any) -> Tensor:
    """Uint8 [n,32,32,3] -> uint8 [n,1024]."""
    colour = torch.as_tensor(images).float()
    return (colour @ torch.tensor(_GREY)).round().flatten(1).to(torch.uint8)
