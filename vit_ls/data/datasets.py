"""Opens a run's data sets and checks them before a model is built."""

import logging
from collections.abc import Sized
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from timm.data import ImageDataset, IterableImageDataset, create_dataset

from vit_ls.config import ConfigError, DataConfig, TrainConfig
from vit_ls.data.digits import Digits
from vit_ls.data.inputs import image_mode

_logger = logging.getLogger(__name__)
_TRAIN_SPLITS = ("train", "training")


class UnreadableImageError(RuntimeError):
    """An image file cannot be read; the message names it and says why."""


class ReadableImages(ImageDataset):
    """timm's image data set, except that an unreadable image is named and not replaced in silence.

    With `held_out`, it is logged and comes as a blank one with label -1, which evaluation counts as
    wrong; else it raises UnreadableImageError.
    """

    held_out = False

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """The image, transformed, and its label."""
        try:
            file, target = self.reader[index][:2]
            with closing(file), Image.open(file) as image:
                decoded = image.convert(self.input_img_mode)
        # Pillow raises SyntaxError for a broken PNG, ValueError for a header that makes no sense.
        except (OSError, SyntaxError, ValueError) as error:
            message = f"{self.filename(index, absolute=True)}: {error}"
            if not self.held_out:
                raise UnreadableImageError(message) from error
            _logger.warning("unreadable image, counted as wrong: %s", message)
            decoded, target = Image.new(self.input_img_mode, (1, 1)), -1
        return (self.transform(decoded) if self.transform else decoded), target


@dataclass(frozen=True)
class Images:
    """One split, ready for a loader.

    Attributes:
        dataset: A data set with a `transform` attribute.
        class_to_idx: Index of each class, where the data set knows.
    """

    dataset: Any
    class_to_idx: dict[str, int] | None

    @property
    def streamed(self) -> bool:
        """Whether the images can only be read in order."""
        return isinstance(self.dataset, IterableImageDataset)

    def file_names(self) -> list[str]:
        """Names of the images' files, in order."""
        if not hasattr(self.dataset, "filenames"):
            raise ConfigError("this data set has no file names.")
        return [str(name) for name in self.dataset.filenames(basename=True)]

    @property
    def num_classes(self) -> int | None:
        """Number of classes, where the data set knows."""
        return max(self.class_to_idx.values()) + 1 if self.class_to_idx else None


def open_images(config: DataConfig, split: str, *, training: bool = False, **reader: Any) -> Images:
    """Open one split.

    Args:
        config: Says where the data is and how it is read.
        split: Name of the split.
        training: Whether a streamed data set is shuffled.
        **reader: More arguments of timm's `create_dataset`.

    Raises:
        ConfigError: There is no such data.
    """
    mode = image_mode(config)
    if config.dataset.lower() == "digits":
        digits = Digits(held_out=split not in _TRAIN_SPLITS, mode=mode)
        return Images(digits, digits.class_to_idx)
    _check_location(config)
    options: dict[str, Any] = {
        "class_map": config.class_map,
        "input_key": config.input_key,
        "target_key": config.target_key,
        **reader,
    }
    try:
        dataset = create_dataset(
            config.dataset,
            root=config.data_dir or None,
            split=split,
            is_training=training,
            download=config.dataset_download,
            batch_size=config.batch_size,
            input_img_mode=mode,
            trust_remote_code=config.dataset_trust_remote_code,
            **{name: value for name, value in options.items() if value not in (None, "")},
        )
    # Readers report missing splits, keys and packages in every way there is; all is about the data.
    except Exception as error:
        place = config.dataset or config.data_dir
        raise ConfigError(f"split {split!r} of {place} cannot be opened: {error}") from error
    if isinstance(dataset, ImageDataset):
        dataset = ReadableImages(None, reader=dataset.reader, input_img_mode=mode)
        dataset.held_out = not training
    if isinstance(dataset, Sized) and len(dataset) == 0:
        raise ConfigError(f"split {split!r} of {config.dataset or config.data_dir} has no images.")
    return Images(dataset, _class_to_idx(dataset))


def open_splits(config: TrainConfig) -> tuple[Images, Images, int | None]:
    """Open the training and the held-out split, and check that their labels fit.

    Returns:
        Both splits, and the number of classes where the configuration or the data says it.

    Raises:
        ConfigError: There is no such data, or the class counts or label maps do not fit.
    """
    train = open_images(
        config,
        config.train_split,
        training=True,
        num_samples=config.train_num_samples,
        seed=config.seed,
        repeats=config.epoch_repeats,
    )
    held_out = open_images(config, config.val_split, num_samples=config.val_num_samples)
    if train.class_to_idx and held_out.class_to_idx and train.class_to_idx != held_out.class_to_idx:
        odd = sorted(train.class_to_idx.items() ^ held_out.class_to_idx.items())
        raise ConfigError(
            f"the splits must have the same classes, got {len(train.class_to_idx)} and "
            f"{len(held_out.class_to_idx)}; the first that differs is {odd[0][0]!r}."
        )
    return train, held_out, checked_num_classes(train, config.num_classes)


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


def _check_location(config: DataConfig) -> None:
    if config.class_map and not Path(config.class_map).is_file():
        raise ConfigError(f"--class-map {config.class_map}: no such file.")
    remote = "/" in config.dataset and config.dataset.partition("/")[0].lower() != "torch"
    if not remote and not Path(config.data_dir).exists():
        raise ConfigError(f"--data-dir {config.data_dir or '(none)'}: no such folder or file.")


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
