"""What a run will do: the benchmarks that are there, their cells and what each is known by."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

import vit_ls
from robustness.data.benchmarks import SINGLE, Benchmark
from robustness.data.gaps import Gap, Kind, some
from robustness.data.inputs import probe_pictures
from robustness.data.listing import Listing
from robustness.data.sources import Places, Source
from robustness.errors import shown
from robustness.rules.protocols import Protocol
from robustness.rules.results import Result
from robustness.running.attacks import Attack, Attacked
from robustness.running.cache import KEEP, Cache
from robustness.running.subject import Subject
from vit_ls.config import ConfigError

_CLASSES = 1000


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        benchmarks: Rows of the table.
        places: Where their images come from.
        named: Whether the user named the benchmarks, so that an absent one is a gap.
        max_images: Images of each cell at most, or None.
        verify: Know images by what their files hold, not by their sizes and times.
        attacks: On the clean images of each benchmark that takes attacks.
        keep: Scores that are kept beside the predictions: one of `capture.KEEPS`, or "".
    """

    benchmarks: Sequence[Benchmark]
    places: Places
    named: bool = False
    max_images: int | None = None
    verify: bool = False
    attacks: Sequence[Attack] = ()
    keep: str = ""


@dataclass(frozen=True)
class PlannedCell:
    """One cell, listed and checked.

    Attributes:
        name: Of the cell.
        listing: Its images, already the subset where one is asked for.
        gaps: Why it cannot be whole.
        notes: What was passed over, and why it is not kept.
        key: Of its counts in the cache.
        source: Cell that its images are of.
        attacked: The attack on them, or None.
    """

    name: str
    listing: Listing
    gaps: list[Gap]
    notes: list[str]
    key: dict[str, str]
    source: str
    attacked: Attacked | None = None

    @property
    def rule(self) -> str:
        """How its answers are judged."""
        return self.key["rule"]


@dataclass(frozen=True)
class PlannedBenchmark:
    """One benchmark that was found, with the transform of its images.

    Attributes:
        benchmark: Row of the table.
        source: Its images.
        protocol: The transform.
        answers: What the model says to the protocol's fixed pictures; None where it refuses one.
        wanted: Images of each cell.
        verify: Know images by their bytes.
        attacks: On its clean images.
        keep: Scores that are kept; "" for none, and of videos.
    """

    benchmark: Benchmark
    source: Source
    protocol: Protocol
    answers: tuple[float, ...] | None
    wanted: int
    verify: bool
    attacks: Sequence[Attack] = ()
    keep: str = ""

    @property
    def answer(self) -> tuple[float, ...]:
        """The answers to fixed pictures, beside the cache's key."""
        return self.answers or ()

    @property
    def unknown(self) -> str:
        """Why nothing tells this transform or model from another one; "" where something does."""
        if self.protocol.refusal:
            return f"not cached: the transform refuses a fixed picture ({self.protocol.refusal})"
        if self.answers is None:
            return "not cached: the model refuses a fixed picture"
        return ""

    def kept_in(self, cache: Cache) -> Cache:
        """The cache, or one that keeps nothing: what is not known cannot be known again."""
        return Cache(None) if self.unknown else cache

    def cells(self, subject: Subject, dtype: torch.dtype) -> Iterator[PlannedCell]:
        """List the cells one after the other: all at once would be millions of names."""
        row = self.benchmark
        for name in self.source.cells():
            listing = self.source.listing(name)
            gaps = list(listing.problems)
            found = len(listing.samples)
            # Where there is no image, what is wrong with the place says why.
            images = self.source.images
            if found != images and (found or not gaps):
                gaps.append(Gap(Kind.COUNT, f"{found} images of {images}"))
            elif found:
                gaps += self._uneven(listing)
            chosen = listing if self.wanted == images else listing.subset(self.wanted)
            known_by = self.source.identity(chosen, name, verify=self.verify)
            key = {
                **subject.identity,
                "benchmark": row.name,
                "cell": name,
                "rule": row.rule_of(name),
                "transform": self.protocol.identity or "",
                "border": str(row.border),
                "dtype": str(dtype),
                "version": vit_ls.__version__,
                **{f"images_{what}": value for what, value in known_by.items()},
                **({KEEP: self.keep} if self.keep else {}),
            }
            notes = [*chosen.notes, *([self.unknown] if self.unknown else [])]
            plain = PlannedCell(name, chosen, gaps, notes, key, name)
            yield plain
            if name == SINGLE[0]:
                yield from (self._under(attack, plain) for attack in self.attacks)

    def _uneven(self, listing: Listing) -> list[Gap]:
        """Classes of a complete cell that have more or fewer images than the others, as published.

        ImageNet's validation set and what is made of it have as many of each class.
        """
        each, rest = divmod(self.source.images, _CLASSES)
        if rest or self.benchmark.classes not in ("wnid", "v2") or self.benchmark.own:
            return []
        counts = Counter(sample.key.split("/")[0] for sample in listing.samples)
        odd = [f"{name} {count}" for name, count in sorted(counts.items()) if count != each]
        text = f"{len(odd)} classes have not {each} images: {some(odd)}"
        return [Gap(Kind.COUNT, text)] if odd else []

    def _under(self, attack: Attack, cell: PlannedCell) -> PlannedCell:
        """The cell under an attack. Only its class counts: ReaL's labels take no part in it."""
        key = cell.key | {"cell": attack.cell, "rule": "plain", "attack": attack.identity}
        attacked = Attacked(attack, self.protocol.normalisation)
        return replace(cell, name=attack.cell, key=key, attacked=attacked)

    def result(self) -> Result:
        """The result before any cell is counted."""
        label = self.source.label
        if self.wanted < self.source.images:
            label += f"; subset of {self.wanted} images of {self.source.images} in each cell"
        return Result(
            self.benchmark.name,
            self.benchmark.numbers,
            shown(self.source.folder.name),
            label,
            self.protocol.description,
            {"transform": self.protocol.identity or "", "images": str(self.wanted)},
            self.wanted,
            list(self.benchmark.cells),
            gaps=self.source.problems(),
            attacks={attack.cell: attack.label for attack in self.attacks},
            libraries={attack.cell: attack.library for attack in self.attacks},
        )


def plan(request: Request, subject: Subject) -> Iterator[PlannedBenchmark]:
    """The benchmarks that are there, with the subject's transforms.

    Raises:
        ConfigError: The model has another number of classes than a benchmark needs.
    """
    found = [(row, request.places.source(row)) for row in request.benchmarks]
    if request.attacks:
        _check_attacks(request, subject, [row for row, source in found if source])
    made: dict[tuple[str, int | None], tuple[Protocol, tuple[float, ...] | None]] = {}
    for row, source in found:
        if source is None:
            continue
        if subject.num_classes not in row.num_classes:
            raise ConfigError(
                f"{row.name} needs a model of {' or '.join(map(str, row.num_classes))} classes, "
                f"got {subject.name} with {subject.num_classes}."
            )
        same = row.protocol, row.image_size
        if same not in made:
            protocol = subject.protocol(*same)
            made[same] = protocol, subject.answer_to(protocol)
        wanted = min(request.max_images or source.images, source.images)
        attacks = request.attacks if row.takes_attacks else ()
        keep = "" if row.frames else request.keep
        yield PlannedBenchmark(row, source, *made[same], wanted, request.verify, attacks, keep)


def _check_attacks(request: Request, subject: Subject, rows: Sequence[Benchmark]) -> None:
    """Whether what was asked for can be attacked.

    Raises:
        ConfigError: A suite takes no attack, or the model or its transform cannot be attacked.
    """
    without = [row.name for row in rows if not row.takes_attacks]
    if without and (request.named or len(without) == len(rows)):
        raise ConfigError(
            "--attack goes with suites of clean images under their own classes (imagenet-val, "
            f"imagenet-v2, imagenet-sketch, digits, folders of one's own), not with {without[0]}."
        )
    device = next((p.device for p in subject.model.parameters()), torch.device("cpu"))
    for row in (row for row in rows if row.takes_attacks):
        protocol = subject.protocol(row.protocol, row.image_size)
        mode = "L" if subject.channels == 1 else "RGB"
        pixels = protocol.pixels(probe_pictures(row.image_size, mode)[0])[None].to(device)
        for attack in request.attacks:
            attacked = Attacked(attack, protocol.normalisation)
            attacked.check(subject.model, pixels, subject.name)
