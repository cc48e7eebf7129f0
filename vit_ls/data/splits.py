# ruff: noqa: PTH100, PTH110, PTH112, PTH113, PTH118, PTH119
# os.path answers False for any text, and is fast enough for a million files.
"""Where a split lies, and whether two splits share images.

timm's readers take the whole data where the folder of a split is missing, or any other split where
there are only two. Here a split that is not there is an error.
"""

import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from timm.data.readers.reader_image_folder import ReaderImageFolder
from timm.data.readers.reader_image_in_tar import ReaderImageInTar

from vit_ls.config import ConfigError, DataConfig, nearest

_logger = logging.getLogger(__name__)
TRAIN = ("train", "training")
HELD_OUT = ("validation", "val", "valid", "eval", "evaluation")
STREAMED = ("hfids", "tfds", "wds")
_IN_FOLDERS = ("torch/folder", "torch/image_folder")
# Data sets of torchvision's that have a training split and another one.
_OF_TWO = ("cifar10", "cifar100", "mnist", "kmnist", "fashion_mnist", "qmnist")
_TORCH = (*_OF_TWO, "imagenet", "inat", "inaturalist", "places365", "folder", "image_folder")
_SHOWN = 8


def checked_kind(dataset: str) -> str:
    """The kind of data that `--dataset` names: "" for a folder or a tar, or the part before "/".

    Raises:
        ConfigError: timm has no such kind; it would read the folder.
    """
    kind, slash, name = dataset.partition("/")
    kind = kind.lower()
    if dataset == "" or (not slash and kind == "digits"):
        return kind
    if slash and name and kind in ("hfds", *STREAMED):
        return kind
    if kind == "torch" and name.lower() in _TORCH:
        return kind
    known = ["digits", *(f"torch/{one}" for one in _TORCH)]
    known += [f"{one}/{name or 'NAME'}" for one in ("hfds", *STREAMED)]
    raise ConfigError(
        "--dataset must be '' (folder or tar), digits, or torch/, hfds/, hfids/, tfds/ or wds/ "
        f"and a name, got {dataset!r}{nearest(dataset, known)}"
    )


def in_folders(dataset: str) -> bool:
    """Whether the classes are folders, or a tar of folders."""
    return dataset == "" or dataset.lower() in _IN_FOLDERS


def downloads(dataset: str) -> bool:
    """Whether timm lets a data set of this kind download."""
    kind, _, name = dataset.lower().partition("/")
    return kind in ("hfids", "tfds") or (
        kind == "torch" and not in_folders(dataset) and name != "imagenet"
    )


def of_two(dataset: str) -> bool:
    """Whether there are only a training split and another one, under any name."""
    return dataset.lower() == "digits" or dataset.lower().removeprefix("torch/") in _OF_TWO


def check_split(dataset: str, split: str) -> None:
    """Raise ConfigError where a data set of two splits does not have this one."""
    if in_folders(dataset):
        return
    if not split:
        raise ConfigError(f"{dataset} needs the name of a split, got ''.")
    known = (*TRAIN, *HELD_OUT, "test")
    if of_two(dataset) and split not in known:
        raise ConfigError(
            f"{dataset} has no split {split!r}; it has {TRAIN[0]!r} and {HELD_OUT[0]!r}."
        )


def split_root(data_dir: str, split: str) -> str:
    """The folder or tar of a split.

    Args:
        data_dir: Holds the folders (or tars) of the splits, or is that of this one.
        split: Its name; timm's synonyms are tried too. "" is all of `data_dir`.

    Raises:
        ConfigError: There is none.
    """
    if not split:
        return data_dir
    if "[" in split:
        raise ConfigError(f"a part of a split needs hfds/ or tfds/, got {split!r}.")
    same = next((names for names in (TRAIN, HELD_OUT) if split in names), ())
    for name in dict.fromkeys((split, *same)):
        place = os.path.join(data_dir, name)
        if os.path.isdir(place):
            return place
        if os.path.isfile(f"{place}.tar"):
            return f"{place}.tar"
    found = _places(data_dir)
    own = os.path.basename(os.path.abspath(data_dir)).removesuffix(".tar")
    if own in (split, *same) and not set(found) & {*TRAIN, *HELD_OUT, "test"}:
        return data_dir
    if not os.path.isdir(data_dir):
        raise ConfigError(f"{data_dir} is one split, {own!r} or '', not {split!r}.")
    shown = ", ".join(map(repr, found[:_SHOWN])) or "(none)"
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise ConfigError(f"{data_dir} has no split {split!r}; it has the folders {shown}{more}.")


def warn_of_idle(config: DataConfig) -> None:
    """Name the settings of the data that do nothing with its kind."""
    if config.dataset_download and not downloads(config.dataset):
        _logger.warning(
            "--dataset-download has no effect: it needs --dataset tfds/, hfids/, or torch/ with "
            "data that torchvision downloads, got %r.",
            config.dataset,
        )


def check_settings(config: DataConfig, kind: str, **reader: Any) -> None:
    """Refuse what this kind of data would ignore, and a place that is not there."""
    if config.class_map and not Path(config.class_map).is_file():
        raise ConfigError(f"--class-map {config.class_map}: no such file.")
    if config.class_map and kind in ("digits", "torch"):
        raise ConfigError(f"--class-map has no effect on {config.dataset}.")
    if kind not in STREAMED:
        count, repeats = reader.get("num_samples"), reader.get("repeats")
        if count is not None:
            raise ConfigError(f"the number of images is that of the data here, got {count}.")
        if repeats:
            raise ConfigError(f"--epoch-repeats is for streamed data sets, got {repeats}.")
    elif kind == "wds" and reader.get("repeats"):
        raise ConfigError(
            "--epoch-repeats is for tfds/ and hfids/: of wds/ --train-num-samples says how many "
            f"images an epoch has, got {reader['repeats']}."
        )
    _check_place(kind, config.data_dir)


def _check_place(kind: str, data_dir: str) -> None:
    """Raise ConfigError where data that lies on this machine is not there."""
    if kind in ("", "torch") and not os.path.exists(data_dir):
        raise ConfigError(f"--data-dir {data_dir or '(none)'}: no such folder or file.")


def links_in(root: str) -> frozenset[str]:
    """The image files below a folder that are symbolic links.

    Raises:
        ConfigError: A link leads back to a folder that it lies in, which timm's reader would follow
            for ever, or a folder cannot be listed, which it would leave out.
    """
    if os.path.isfile(root):
        return frozenset()
    links = set()
    pending: list[tuple[str, str, tuple[str, ...]]] = [(root, os.path.realpath(root), ())]
    while pending:
        path, real, above = pending.pop()
        above = (*above, real)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if not entry.is_symlink():
                        if entry.is_dir():
                            pending.append((entry.path, f"{real}/{entry.name}", above))
                    elif os.path.isdir(entry.path):
                        target = os.path.realpath(entry.path)
                        if target in above or f"{real}/".startswith(f"{target}/"):
                            raise ConfigError(
                                f"{entry.path} is a link to {target}, a folder that it lies in."
                            )
                        pending.append((entry.path, target, above))
                    else:
                        links.add(entry.path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be listed: {error.strerror}.") from error
    return frozenset(links)


def shared(kind: str, train: Any, held_out: Any, links: frozenset[str]) -> str | None:
    """An image, a file or a split that two data sets of one kind share, or None.

    Args:
        kind: As `checked_kind` gives it.
        train: A data set.
        held_out: Another one.
        links: The files of both that are symbolic links.
    """
    readers = [getattr(dataset, "reader", dataset) for dataset in (train, held_out)]
    if kind == "hfds":
        return _shared_rows(*readers)
    if kind in ("hfids", "tfds"):
        return _shared_names(*(reader.split for reader in readers))
    theirs = set(_files(readers[1], links))
    return next((file for file in _files(readers[0], links) if file in theirs), None)


def _files(reader: Any, links: frozenset[str]) -> Iterator[str]:
    """Paths of the files that are read, without symbolic links; none where that is not known."""
    if isinstance(reader, ReaderImageInTar):
        for parent in {parent for _, parent, _ in reader.samples}:
            yield os.path.realpath(os.path.join(reader.root, parent or ""))
    elif hasattr(reader, "split_info"):  # WebDataset, whose reader needs its package
        for name in reader.split_info.filenames:
            yield name if "://" in name else os.path.realpath(os.path.join(reader.root, name))
    elif isinstance(reader, ReaderImageFolder):
        folder = cache(os.path.realpath)
        for path, _ in reader.samples:
            parent, name = os.path.split(path)
            yield os.path.realpath(path) if path in links else f"{folder(parent)}/{name}"


def _shared_rows(train: Any, held_out: Any) -> str | None:
    """The split of a Hugging Face data set of which both take the same rows."""
    from datasets import ReadInstruction  # here, because folders do not need it

    sizes = {name: info.num_examples for name, info in (train.dataset.info.splits or {}).items()}
    mine, theirs = (
        ReadInstruction.from_spec(reader.split).to_absolute(sizes) for reader in (train, held_out)
    )
    for one in mine:
        for other in theirs:
            if one.splitname == other.splitname and one.from_ < other.to and other.from_ < one.to:
                return str(one.splitname)
    return None


def _shared_names(train: str, held_out: str) -> str | None:
    """A split of which both take images, as far as names tell: two slices may be apart."""
    if train == held_out:
        return train
    mine, theirs = (
        {part.partition("[")[0].strip(): "[" in part for part in split.split("+")}
        for split in (train, held_out)
    )
    for name in mine.keys() & theirs.keys():
        if not (mine[name] and theirs[name]):
            return name
        _logger.warning("whether %s and %s share images is not known.", train, held_out)
    return None


def _places(data_dir: str) -> list[str]:
    """Names of the folders and tars in a folder."""
    try:
        with os.scandir(data_dir) as entries:
            found = [
                Path(entry.name).stem if entry.name.endswith(".tar") else entry.name
                for entry in entries
                if entry.is_dir() or entry.name.endswith(".tar")
            ]
    except OSError:  # a file
        return []
    return sorted(found)
