"""Where images come from: a benchmark's own folder, arrays, our corruptions, the digits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from robustness.corruptions.weather import procedural_frost
from robustness.data import layouts
from robustness.data.benchmarks import BENCHMARKS, Benchmark
from robustness.data.decoded import Decoded
from robustness.data.gaps import Gap, Kind
from robustness.data.images import CROP, Generator, Picture, described, read_file
from robustness.data.listing import Listing, Sample, digest
from robustness.data.videos import needed, read_frames
from vit_ls.config import ConfigError
from vit_ls.data.digits import Digits

OWN = "the owner's files"
"""Label of a benchmark of one's own: nobody else vouches for it."""

MANIFEST = "GENERATED.json"
"""File that `python -m robustness.corrupt` leaves in the folders it makes: what made them."""


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What made the images of a folder; None where nothing says that they were made.

    Raises:
        ConfigError: The manifest is damaged.
    """
    file = folder / MANIFEST
    try:
        made: dict[str, Any] = json.loads(file.read_bytes())
        described(made)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is damaged: {error!r}.") from None
    return made


class Source:
    """A benchmark's folder.

    Args:
        benchmark: Row of the table.
        folder: Where it lies.
    """

    def __init__(self, benchmark: Benchmark, folder: Path) -> None:
        self.benchmark = benchmark
        self.folder = folder
        self.made = read_manifest(folder)

    @property
    def label(self) -> str:
        """What must stand beside every number."""
        if self.made is not None:
            return described(self.made)
        if self.benchmark.own:
            return OWN
        return "generated, origin unknown" if self.benchmark.generated else "official files"

    @property
    def images(self) -> int:
        """Images of a complete cell."""
        return self.benchmark.images

    def problems(self) -> list[Gap]:
        """What is wrong with the folder as a whole."""
        if self.made is not None and not (self.benchmark.generated or self.benchmark.own):
            text = "generated images, not the released ones: name the folder imagenet-c-generated"
            return [Gap(Kind.MADE_OTHERWISE, text)]
        return []

    def cells(self) -> Sequence[str]:
        """The cells to evaluate: all required ones, and the extra ones that are there."""
        extra = [
            cell
            for cell in self.benchmark.extra_cells
            if layouts.cell_folder(self.benchmark, self.folder, cell)
        ]
        return [*self.benchmark.cells, *extra]

    def listing(self, cell: str) -> Listing:
        """The images of a cell."""
        return layouts.list_cell(self.benchmark, self.folder, cell)

    def identity(self, listing: Listing, cell: str, *, verify: bool = False) -> dict[str, str]:
        """What tells a cell's images from others, for the cache's key.

        Args:
            listing: The images, already the subset where one is asked for.
            cell: Name of the cell.
            verify: By what the files hold instead of their sizes and times.
        """
        del cell
        made = {} if self.made is None else {"made": json.dumps(self.made, sort_keys=True)}
        return {"names": listing.names(), **listing.files(verify=verify), **made}

    def read(self, sample: Sample, cell: str) -> Picture:
        """One image of a cell, or the frames of one of its videos."""
        del cell
        if self.benchmark.frames:
            assert sample.path is not None
            return read_frames(sample.path)
        image = read_file(sample)
        return ImageOps.crop(image, self.benchmark.border) if self.benchmark.border else image


class ArraySource(Source):
    """Arrays as CIFAR-10-C has them: <corruption>.npy, severity after severity, and labels.npy."""

    def cells(self) -> Sequence[str]:
        """All cells."""
        return self.benchmark.cells

    def _files(self, cell: str) -> tuple[Path, Path]:
        return self.folder / f"{cell.split('/', maxsplit=1)[0]}.npy", self.folder / "labels.npy"

    @cached_property
    def _arrays(self) -> dict[Path, Any]:
        return {}

    def _array(self, file: Path) -> Any:
        if file not in self._arrays:
            self._arrays[file] = np.load(file, mmap_mode="r", allow_pickle=False)
        return self._arrays[file]

    def _first(self, cell: str) -> int:
        return (int(cell.split("/")[1]) - 1) * self.benchmark.images

    def listing(self, cell: str) -> Listing:
        """The rows of a cell, named by their place within it."""
        first, count = self._first(cell), self.benchmark.images
        try:
            pictures, labels = (self._array(file) for file in self._files(cell))
        except FileNotFoundError as error:
            return Listing((), (Gap(Kind.NO_FOLDER, f"no file {Path(error.filename).name}"),))
        except (OSError, ValueError) as error:
            return Listing((), (Gap(Kind.UNREADABLE, f"no array: {error}"),))
        wrong = self._shape_problem(pictures, labels, cell)
        if wrong is not None:
            return Listing((), (wrong,))
        targets = labels[first : first + count].tolist()
        classes = self.benchmark.num_classes[0]
        if targets and not 0 <= min(targets) <= max(targets) < classes:
            text = f"labels must lie in 0 to {classes - 1}, got {min(targets)} to {max(targets)}"
            return Listing((), (Gap(Kind.STRANGE_CLASS, text),))
        return Listing(tuple(Sample(f"{i:06d}", int(t), None) for i, t in enumerate(targets)))

    def _shape_problem(self, pictures: Any, labels: Any, cell: str) -> Gap | None:
        """What keeps a row from being image i of severity s: the order is that of CIFAR-10-C."""
        whole = pictures.ndim == 4 and pictures.shape[-1] == 3 and pictures.dtype == np.uint8
        if not whole or labels.shape != pictures.shape[:1]:
            shapes = f"{pictures.dtype} {pictures.shape}, labels {labels.shape}"
            text = f"arrays must be uint8 [N, H, W, 3] and labels [N], got {shapes}"
            return Gap(Kind.UNREADABLE, text)
        corruption, count = cell.split("/", maxsplit=1)[0], self.benchmark.images
        steps = sum(name.split("/")[0] == corruption for name in self.benchmark.cells)
        if len(pictures) != steps * count:
            return Gap(
                Kind.COUNT,
                f"rows must be severities x images = {steps} x {count} = {steps * count}, "
                f"got {len(pictures)}",
            )
        if (labels.reshape(steps, count) != labels[:count]).any():
            text = "labels must be the same at each severity, in the order of the first one"
            return Gap(Kind.STRANGE_CLASS, text)
        return None

    def identity(self, listing: Listing, cell: str, *, verify: bool = False) -> dict[str, str]:
        """Names and classes, and the two files."""
        files = tuple(Sample(file.name, 0, file) for file in self._files(cell) if file.exists())
        return {"names": listing.names(), **Listing(files).files(verify=verify)}

    def read(self, sample: Sample, cell: str) -> Image.Image:
        """One row."""
        pictures = self._array(self._files(cell)[0])
        return Image.fromarray(np.array(pictures[self._first(cell) + int(sample.key)]))


class GeneratedSource(Source):
    """Corruptions of the validation set, made while they are read; no files are written."""

    def __init__(
        self, benchmark: Benchmark, val: Path, generator: Generator, scratch: Path | None = None
    ) -> None:
        super().__init__(benchmark, val)
        self.scratch = scratch
        if generator.frost_dir is None:
            procedural_frost()  # Drawn once, before workers start, which inherit it.
        self.generator = generator
        self.made = generator.identity

    def problems(self) -> list[Gap]:
        """None: the folder is that of the validation set."""
        return []

    def cells(self) -> Sequence[str]:
        """All cells, extra ones too."""
        return [*self.benchmark.cells, *self.benchmark.extra_cells]

    @cached_property
    def _val(self) -> Listing:
        return layouts.list_cell(BENCHMARKS["imagenet-val"], self.folder, "all")

    def listing(self, cell: str) -> Listing:
        """The images of the validation set."""
        del cell
        self._decoded  # noqa: B018 - made here, before the processes that read are forked
        return self._val

    @cached_property
    def _decoded(self) -> Decoded:
        return Decoded(self.scratch, CROP)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {sample.key: place for place, sample in enumerate(self._val.samples)}

    def identity(self, listing: Listing, cell: str, *, verify: bool = False) -> dict[str, str]:
        """The clean images, and what the generator does."""
        clean = super().identity(listing, cell, verify=verify)
        return clean | {"fingerprint": self.generator.fingerprint(cell)}

    def read(self, sample: Sample, cell: str) -> Image.Image:
        """One image, corrupted."""
        return self.generator.corrupted(self.prepared(sample), sample.key, cell)

    def prepared(self, sample: Sample) -> Image.Image:
        """One image as all cells corrupt it."""
        place = self._places[sample.key]
        return self._decoded.get(place, lambda: self.generator.prepare(read_file(sample)))


class DigitsSource(GeneratedSource):
    """The embedded held-out digits, clean and under the generated corruptions at 32x32."""

    def __init__(self, benchmark: Benchmark, generator: Generator) -> None:
        super().__init__(benchmark, Path("embedded digits"), generator)
        try:
            self.digits = Digits(held_out=True)
        except ModuleNotFoundError as error:
            raise ConfigError("the digits need scikit-learn: pip install -e '.[demo]'") from error

    def listing(self, cell: str) -> Listing:
        """The held-out digits, named by their class and place."""
        del cell
        targets = self.digits.targets
        return Listing(tuple(Sample(f"{t}/{i:03d}", t, None) for i, t in enumerate(targets)))

    @cached_property
    def _contents(self) -> str:
        pictures = (self.digits[place][0] for place in range(len(self.digits)))
        return digest(picture.tobytes().hex() for picture in pictures)

    def identity(self, listing: Listing, cell: str, *, verify: bool = False) -> dict[str, str]:
        """The digits themselves, and what the generator does."""
        del verify
        own = {"names": listing.names(), "contents": self._contents}
        if cell == "all":
            return own
        made = json.dumps(self.made, sort_keys=True)
        return own | {"made": made, "fingerprint": self.generator.fingerprint(cell)}

    def read(self, sample: Sample, cell: str) -> Image.Image:
        """One digit; the cell "all" is clean."""
        image: Image.Image = self.digits[int(sample.key.split("/")[1])][0]
        return image if cell == "all" else self.generator.corrupted(image, sample.key, cell)


@dataclass(frozen=True)
class Places:
    """Where images may come from.

    Attributes:
        root: Data root, or None.
        generate: Make ImageNet-C's corruptions from the validation set.
        generator: How they are made.
        folders: Folders of benchmarks that lie elsewhere, by name.
        scratch: Folder of a disk for decoded images; None for the system's temporary one.
    """

    root: Path | None
    generate: bool = False
    generator: Generator = field(default_factory=Generator)
    folders: dict[str, Path] = field(default_factory=dict)
    scratch: Path | None = None

    def source(self, benchmark: Benchmark) -> Source | None:
        """The source of a benchmark, or None where its folder is not there.

        Raises:
            ConfigError: The benchmark needs a data root and there is none.
        """
        if benchmark.layout == "digits":
            bare = Generator(self.generator.seed, self.generator.frost_dir, as_files=False)
            return DigitsSource(benchmark, bare)
        row = self._row(benchmark)
        folder = self._folder(row)
        if folder is None:
            return None
        if benchmark.frames:
            needed()  # Said before the run, not by the first file.
        if row is not benchmark:
            return GeneratedSource(benchmark, folder, self.generator, self.scratch)
        from robustness.data.unknown import ListSource, TreeSource  # they are sources themselves

        kinds = {"arrays": ArraySource, "tree": TreeSource, "list": ListSource}
        return kinds.get(benchmark.layout, Source)(benchmark, folder)

    def looked(self, benchmark: Benchmark) -> str:
        """Where a benchmark was looked for, in words."""
        row = self._row(benchmark)
        if row.name in self.folders:
            return f"not found; looked for {self.folders[row.name]}"
        return f"not found; looked for {', '.join(row.folders)} under {self.root}"

    def _row(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark whose files are read."""
        made = benchmark.generated and self.generate
        return BENCHMARKS["imagenet-val"] if made else benchmark

    def _folder(self, row: Benchmark) -> Path | None:
        if row.name in self.folders:
            return self.folders[row.name] if self.folders[row.name].is_dir() else None
        if self.root is None:
            raise ConfigError(f"--data-root is needed for {row.name}.")
        return layouts.find(row, self.root)
