"""Where the images of a benchmark come from: its own folder, our corruptions, or the digits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from PIL import Image

from robustness.corruptions.weather import procedural_frost
from robustness.data import layouts
from robustness.data.benchmarks import BENCHMARKS, Benchmark
from robustness.data.images import Generator, read_file
from robustness.data.layouts import Listing, Sample
from robustness.errors import UsageError
from vit_ls.data.digits import SIZE as DIGITS_SIZE
from vit_ls.data.digits import Digits


class Source:
    """A benchmark's folder.

    Args:
        benchmark: Row of the table.
        folder: Where it lies.
    """

    label = "official files"
    made = ""
    """What made the images, for the cache's key; empty for files."""

    def __init__(self, benchmark: Benchmark, folder: Path) -> None:
        self.benchmark = benchmark
        self.folder = folder
        if benchmark.generated:
            self.label = _mark_of(folder)

    @property
    def image_size(self) -> int | None:
        """Side of every image, where it is fixed."""
        return self.benchmark.image_size

    def problems(self) -> list[str]:
        """What is wrong with the folder as a whole."""
        if not self.benchmark.generated and (self.folder / layouts.GENERATED_MARK).exists():
            return ["generated images, not the released ones: name the folder imagenet-c-generated"]
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

    def read(self, sample: Sample, cell: str) -> Image.Image:
        """One image of a cell."""
        del cell
        return read_file(sample)


class GeneratedSource(Source):
    """Corruptions of the validation set, made while they are read; no files are written."""

    def __init__(self, benchmark: Benchmark, val: Path, generator: Generator) -> None:
        super().__init__(benchmark, val)
        if generator.frost_dir is None:
            procedural_frost()  # Drawn once, before workers start, which inherit it.
        self.generator = generator
        self.label = self.made = generator.description

    def problems(self) -> list[str]:
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
        return self._val

    def read(self, sample: Sample, cell: str) -> Image.Image:
        """One image, corrupted."""
        return self.generator(read_file(sample), sample.key, cell)


class DigitsSource(GeneratedSource):
    """The embedded held-out digits, clean and under the generated corruptions at 32x32."""

    def __init__(self, benchmark: Benchmark, generator: Generator) -> None:
        super().__init__(benchmark, Path("embedded digits"), generator)
        try:
            self.digits = Digits(held_out=True)
        except ModuleNotFoundError as error:
            raise UsageError("the digits need scikit-learn: pip install -e '.[demo]'") from error

    @property
    def image_size(self) -> int | None:
        """Side of the digits."""
        return DIGITS_SIZE

    def listing(self, cell: str) -> Listing:
        """The held-out digits, named by their class and place."""
        del cell
        targets = self.digits.targets
        return Listing(tuple(Sample(f"{t}/{i:03d}", t, None) for i, t in enumerate(targets)))

    def read(self, sample: Sample, cell: str) -> Image.Image:
        """One digit; the cell "all" is clean."""
        image: Image.Image = self.digits[int(sample.key.split("/")[1])][0]
        return image if cell == "all" else self.generator(image, sample.key, cell)


@dataclass(frozen=True)
class Places:
    """Where images may come from.

    Attributes:
        root: Data root, or None.
        generate: Make ImageNet-C's corruptions from the validation set.
        generator: How they are made.
    """

    root: Path | None
    generate: bool = False
    generator: Generator = field(default_factory=Generator)

    def source(self, benchmark: Benchmark) -> Source | None:
        """The source of a benchmark, or None where its folder is not there.

        Raises:
            UsageError: The benchmark needs a data root and there is none.
        """
        if benchmark.layout == "digits":
            bare = Generator(self.generator.seed, self.generator.frost_dir, as_files=False)
            return DigitsSource(benchmark, bare)
        if self.root is None:
            raise UsageError(f"--data-root is needed for {benchmark.name}.")
        if benchmark.generated and self.generate:
            val = layouts.find(BENCHMARKS["imagenet-val"], self.root)
            return GeneratedSource(benchmark, val, self.generator) if val else None
        folder = layouts.find(benchmark, self.root)
        return Source(benchmark, folder) if folder else None

    def looked(self, benchmark: Benchmark) -> str:
        """Where a benchmark was looked for, in words."""
        made = benchmark.generated and self.generate
        row = BENCHMARKS["imagenet-val"] if made else benchmark
        return f"not found; looked for {', '.join(row.folders)} under {self.root}"


def _mark_of(folder: Path) -> str:
    mark = folder / layouts.GENERATED_MARK
    return mark.read_text().strip() if mark.exists() else "generated, origin unknown"
