"""Images of no class that a model knows: trees of them, and OpenOOD's lists as they are published.

A list (`benchmark_imglist/imagenet/test_ninco.txt`) has a line for each image: its path under
`images_largescale` or `images_classic`, and its class, -1 where it has none.
"""

from functools import lru_cache
from pathlib import Path

from robustness.data import labels, layouts
from robustness.data.benchmarks import Benchmark
from robustness.data.gaps import Gap, Kind, some
from robustness.data.listing import Listing, Sample
from robustness.data.sources import Source
from robustness.errors import shown
from vit_ls.config import ConfigError

NONE = -1
"""Class of an image that has none."""

_LISTS = Path("benchmark_imglist", "imagenet")
_FOLDERS = ("images_largescale", "images_classic")


class TreeSource(Source):
    """All images under a folder, however deep; the names of their folders mean nothing."""

    def problems(self) -> list[Gap]:
        """What is wrong with the folder as a whole.

        Raises:
            ConfigError: Its folders are named as classes that the model knows.
        """
        known = labels.wnid_to_index() if 1000 in self.benchmark.num_classes else {}
        inside = sorted(p.name for p in self.folder.iterdir() if p.name in known)
        # ImageNet-O's are named by the classes that its images are taken for.
        if inside and self.benchmark.own:
            raise ConfigError(
                f"{self.benchmark.name}: unknown images must be of no class of ImageNet, "
                f"got {some(inside)} in {self.folder}."
            )
        return super().problems()

    def listing(self, cell: str) -> Listing:
        """Its images, named by their paths."""
        del cell
        samples, stray, odd = [], [], []
        for path in sorted(self.folder.rglob("*")):
            key = path.relative_to(self.folder).as_posix()
            if path.is_dir() or any(layouts.is_junk(part) for part in key.split("/")):
                continue
            if shown(key) != key:
                odd.append(shown(key))
            elif path.suffix.lower() in layouts.IMAGE_TYPES:
                samples.append(Sample(key, NONE, path))
            elif "/" in key:
                stray.append(key)  # beside the folders archives leave words about themselves
        gaps = [
            Gap(kind, f"{len(names)} {what}: {some(names)}")
            for kind, names, what in (
                (Kind.STRAY, stray, "files of an unknown type"),
                (Kind.NOT_UTF8, odd, "names that are not UTF-8, which no report can hold"),
            )
            if names
        ]
        return Listing(tuple(samples), tuple(gaps))


class ListSource(Source):
    """The images that a list of OpenOOD names; `folder` holds the lists and the images."""

    @property
    def images(self) -> int:
        """As many as the list names."""
        return len(self._samples)

    @property
    def _samples(self) -> tuple[Sample, ...]:
        return _read(self.folder, self.benchmark)

    def listing(self, cell: str) -> Listing:
        """The images of the list, in the order of their names."""
        del cell
        return Listing(self._samples)


@lru_cache(maxsize=16)
def _read(folder: Path, benchmark: Benchmark) -> tuple[Sample, ...]:
    file = folder / _LISTS / f"{benchmark.classes}.txt"
    try:
        lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{benchmark.name}: {file} cannot be read: {error}.") from error
    samples, missing = {}, []
    known = range(1000) if benchmark.labelled else [NONE]
    for number, line in enumerate(lines, start=1):
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.lstrip("-").isdigit() or int(label) not in known:
            wanted = "a path and a class from 0 to 999" if benchmark.labelled else "a path and -1"
            raise ConfigError(f"{file} line {number} must be {wanted}, got {line.strip()!r}.")
        path = next((p for base in _FOLDERS if (p := folder / base / name).is_file()), None)
        if path is None:
            missing.append(name)
        elif name in samples:
            raise ConfigError(f"{file} line {number}: {name} is there twice.")
        else:
            samples[name] = Sample(name, int(label), path)
    if missing:
        where = " and ".join(_FOLDERS)
        raise ConfigError(
            f"{file} names {len(missing)} images that are not in {where}: {some(missing)}."
        )
    if not samples:
        raise ConfigError(f"{file} names no image.")
    return tuple(samples[name] for name in sorted(samples))
