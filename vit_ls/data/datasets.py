"""Opens a run's data sets and checks them before a model is built."""

import hashlib
import logging
from collections.abc import Sized
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from PIL import Image
from timm.data import ImageDataset, IterableImageDataset, create_dataset
from timm.data.readers.reader import Reader
from timm.data.readers.reader_image_folder import ReaderImageFolder
from torchvision.datasets import DatasetFolder

from vit_ls.config import ConfigError, DataConfig, TrainConfig
from vit_ls.data.digits import Digits
from vit_ls.data.errors import UnreadableImageError
from vit_ls.data.inputs import image_mode
from vit_ls.data.labels import checked_label, relabel
from vit_ls.data.pictures import PictureError, ReducedCrop, converted, opened
from vit_ls.data.splits import (
    TRAIN,
    check_settings,
    check_split,
    checked_kind,
    in_folders,
    links_in,
    of_two,
    shared,
    split_root,
    warn_of_idle,
)
from vit_ls.data.streaming import hub, shards
from vit_ls.data.streaming.images import StreamedImages
from vit_ls.data.streaming.order import ShardOrder
from vit_ls.errors import blamed_on

_logger = logging.getLogger(__name__)


class ReadableImages(ImageDataset):
    """timm's image data set, except that an unreadable image is named and not replaced in silence.

    With `held_out`, it is logged and comes as a blank one with label -1, which evaluation counts as
    wrong; else it raises UnreadableImageError. `crop`, if there is one, decodes a file that is
    opened, instead of the whole of it.
    """

    held_out = False
    crop: ReducedCrop | None = None
    num_classes: int | None = None

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """The image, transformed, and its label."""
        try:
            file, target = self._sample(index)
            with nullcontext() if isinstance(file, str) else file, opened(file) as image:
                mode = self.input_img_mode
                decoded = self.crop(image) if self.crop else converted(image, mode)
        except PictureError as error:
            message = " ".join(f"{self.filename(index, absolute=True)}: {error}".split())
            if not self.held_out:
                raise UnreadableImageError(message) from error
            _logger.warning("unreadable image, counted as wrong: %s", message)
            decoded, target = Image.new(self.input_img_mode, (1, 1)), -1
        else:
            target = checked_label(
                target, self.num_classes, lambda: str(self.filename(index, absolute=True))
            )
        return (self.transform(decoded) if self.transform else decoded), target

    def _sample(self, index: int) -> tuple[Any, Any]:
        """A path, where the picture has a file of its own, or an open file; and the label."""
        if isinstance(self.reader, ReaderImageFolder):
            return self.reader.samples[index]
        # Readers of tars and of Hugging Face's data raise what their packages raise.
        with blamed_on("its data set does not give it", PictureError):
            return self.reader[index][:2]


class _ClassFolders(ReaderImageFolder):
    """The class folders that torchvision found, read as timm's."""

    def __init__(self, found: DatasetFolder) -> None:
        Reader.__init__(self)
        self.root, self.samples = str(found.root), found.samples
        self.class_to_idx = found.class_to_idx


@dataclass(frozen=True)
class Images:
    """One split, ready for a loader.

    Attributes:
        dataset: A data set with a `transform` attribute.
        class_to_idx: Index of each class, where the data set knows.
        links: Its files that are symbolic links.
        order: Draws the order of a training epoch, where it is not one of any image at any place.
    """

    dataset: Any
    class_to_idx: dict[str, int] | None
    links: frozenset[str] = frozenset()
    order: ShardOrder | None = None

    @property
    def streamed(self) -> bool:
        """Whether the images can only be read in order."""
        return isinstance(self.dataset, IterableImageDataset)

    def file_names(self) -> list[str]:
        """Names of the images' files, in order."""
        if self.streamed or not hasattr(self.dataset, "filenames"):
            raise ConfigError("this data set has no file names.")
        return [str(name) for name in self.dataset.filenames(basename=True)]

    @property
    def listing(self) -> str | None:
        """Identity of the list of images (names, of shards sizes too), where it has one."""
        reader = getattr(self.dataset, "reader", None)
        if isinstance(reader, shards.ShardReader):
            return reader.index.digest()
        if not isinstance(reader, ReaderImageFolder):
            return None
        names = (path.removeprefix(str(reader.root)) for path, _ in reader.samples)
        return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def num_classes(self) -> int | None:
        """Number of classes, where the data set knows."""
        return max(self.class_to_idx.values()) + 1 if self.class_to_idx else None


def open_images(config: DataConfig, split: str, *, training: bool = False, **more: Any) -> Images:
    """Open one split.

    Args:
        config: Says where the data is and how it is read.
        split: Name of the split.
        training: Whether a streamed data set is shuffled.
        **more: More arguments of timm's `create_dataset`.

    Raises:
        ConfigError: There is no such data.
    """
    mode = image_mode(config)
    kind = checked_kind(config.dataset)
    check_split(config.dataset, split)
    check_settings(config, kind, **more)
    if kind == "digits":
        digits = Digits(held_out=split not in TRAIN, mode=mode)
        return Images(digits, digits.class_to_idx)
    root, links = config.data_dir, frozenset[str]()
    if in_folders(config.dataset):
        root = split_root(config.data_dir, split)
        links = links_in(root)
    # The map is read by timm, but for folders and tars, to say what it leaves out.
    relabels = bool(config.class_map) and kind == ""
    options: dict[str, Any] = {
        "class_map": "" if relabels else config.class_map,
        "input_key": config.input_key,
        "target_key": config.target_key,
        **more,
    }
    place = config.dataset or root
    # Readers report missing splits, keys and packages in every way there is; all is about the data.
    with blamed_on(f"split {split!r} of {place} cannot be opened", ConfigError):
        dataset = create_dataset(
            config.dataset,
            root=root or None,
            split=split,
            search_split=False,
            # What timm's reader of shards wants to be told in training is counted, or asked for.
            is_training=training and kind != "wds",
            download=config.dataset_download,
            batch_size=config.batch_size,
            input_img_mode=mode,
            trust_remote_code=config.dataset_trust_remote_code,
            **{name: value for name, value in options.items() if value not in (None, "")},
        )
        if relabels:
            relabel(dataset.reader, config.class_map)
        if kind == "wds":
            dataset.reader.is_training = training
        source = {"wds": shards, "hfids": hub}.get(kind)
        if source is not None or kind == "hfds":
            (source or hub).check_keys(dataset.reader, config.input_key, config.target_key)
    reader: Reader | None = None
    order = None
    if isinstance(dataset, DatasetFolder):
        reader = _ClassFolders(dataset)
    elif isinstance(dataset, ImageDataset):
        reader = dataset.reader
    elif source is shards and shards.on_disk(dataset.reader):
        reader = by_place = shards.ShardReader(dataset.reader)
        order = by_place.order(more.get("num_samples"), training=training)
    if reader is not None:
        dataset = ReadableImages(None, reader=reader, input_img_mode=mode)
        dataset.held_out = not training
    elif source is not None:
        if not dataset.reader.num_samples:
            raise ConfigError(
                f"--{'train' if training else 'val'}-num-samples N is needed: {place} does not say "
                f"how many images the split {split!r} has, and only shards on a disk are counted."
            )
        dataset = StreamedImages(
            dataset.reader,
            source.samples,
            mode=mode,
            split=split,
            held_out=not training,
            turn=kind == "hfids",  # as its package does, from which timm takes the images
        )
    if isinstance(dataset, Sized) and len(dataset) == 0:
        raise ConfigError(f"split {split!r} of {place} has no images.")
    return Images(dataset, _class_to_idx(dataset), links, order)


def open_splits(config: TrainConfig) -> tuple[Images, Images | None, int]:
    """Open the training and the held-out split, and check that they fit and share no image.

    Returns:
        Both splits, the held-out one None for `--val-split ''`, and the number of classes.

    Raises:
        ConfigError: There is no such data, the class counts or label maps do not fit, nothing says
            how many classes there are, or an image is in both splits.
    """
    for split in filter(None, (config.train_split, config.val_split)):
        check_split(config.dataset, split)
    warn_of_idle(config)
    train = open_images(
        config,
        config.train_split,
        training=True,
        num_samples=config.train_num_samples,
        seed=config.seed,
        repeats=config.epoch_repeats,
    )
    held_out = None
    if config.val_split:
        held_out = open_images(config, config.val_split, num_samples=config.val_num_samples)
        _check_pair(config, train, held_out)
    num_classes = checked_num_classes(train, config.num_classes)
    if num_classes is None:
        raise ConfigError(
            f"--num-classes N is needed: {config.dataset} does not say how many classes it has."
        )
    return train, held_out, num_classes


def _check_pair(config: TrainConfig, train: Images, held_out: Images) -> None:
    splits = f"{config.train_split!r} and {config.val_split!r}"
    if train.class_to_idx and held_out.class_to_idx and train.class_to_idx != held_out.class_to_idx:
        odd = sorted(train.class_to_idx.items() ^ held_out.class_to_idx.items())
        raise ConfigError(
            f"the splits must have the same classes, got {len(train.class_to_idx)} and "
            f"{len(held_out.class_to_idx)}; the first that differs is {odd[0][0]!r}."
        )
    kind, links = checked_kind(config.dataset), train.links | held_out.links
    same = config.train_split if config.train_split == config.val_split else None
    if same is None and of_two(config.dataset):
        sides = {split in TRAIN for split in (config.train_split, config.val_split)}
        same = config.val_split if len(sides) == 1 else None
    same = same or shared(kind, train.dataset, held_out.dataset, links)
    if same is not None:
        raise ConfigError(f"the splits must not share images: {splits} both have {same}.")


def checked_num_classes(images: Images, num_classes: int | None) -> int | None:
    """The number of classes asked for, or else that of the data.

    Raises:
        ConfigError: The data has more classes than asked for.
    """
    found = images.num_classes
    if found is not None and num_classes is not None and found > num_classes:
        raise ConfigError(
            f"--num-classes must be at least the {found} classes of the data, got {num_classes}."
        )
    return found if num_classes is None else num_classes


def _class_to_idx(dataset: Any) -> dict[str, int] | None:
    reader = getattr(dataset, "reader", None)
    # timm's reader of tar files has a name of its own for it.
    for owner, name in (
        (dataset, "class_to_idx"),
        (reader, "class_to_idx"),
        (reader, "class_name_to_idx"),
    ):
        mapping = getattr(owner, name, None)
        if isinstance(mapping, dict) and mapping:
            return {str(key): int(index) for key, index in mapping.items()}
    return None
