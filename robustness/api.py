"""The suite from Python: any nn.Module, any transform. The command is a thin layer over this."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from robustness.corruptions.weather import frost_photographs
from robustness.data.benchmarks import BENCHMARKS, Benchmark, choose
from robustness.data.images import Generator
from robustness.data.own import read_benchmark
from robustness.data.sources import Places
from robustness.files import check_folder, write_atomically
from robustness.gates.judged import Gates
from robustness.reporting.page import to_html
from robustness.reporting.plots import plot_report
from robustness.reporting.report import write_report
from robustness.rules.protocols import Protocol, own_protocol
from robustness.rules.results import Report
from robustness.running.attacks import STEPS, Attack
from robustness.running.cache import Cache
from robustness.running.loop import Loop, joined
from robustness.running.question import asked_of, claim
from robustness.running.run import Request, expected_report, run
from robustness.running.subject import Subject, make_subject
from vit_ls.config import ConfigError
from vit_ls.job import LostRankError, Ranks, by_primary, device_named, in_contact, leave

Transform = Callable[[Image.Image], torch.Tensor]


@dataclass(frozen=True)
class Options:
    """What is asked and how it is run.

    Attributes:
        data_root: Folder of the benchmarks' folders.
        suites: Names of benchmarks; None for all that are found.
        benchmarks: YAML files of benchmarks of one's own.
        folders: Folders of benchmarks that do not lie under the root, by name.
        max_images: A fixed subset of each cell.
        generate: Corrupt the validation set on the fly.
        seed: Of the generated corruptions.
        frost_dir: Photographs of frost to generate with.
        verify: Know images by their bytes, not by their sizes and times of modification.
        device: What the model computes on; "auto" is the accelerator where there is one.
        dtype: Of the computation.
        batch_size: Images per step and process.
        workers: Processes that read images.
        cache: Folder of finished cells; None keeps nothing.
        dist_timeout: Seconds until a lost process ends the run.
        output: Folder of the report and the predictions; None writes nothing.
        overwrite: Write where the report of another question lies.
        attacks: On the clean images of the suites that take them: "pgd", "autoattack".
        eps: Largest distance of the attacks, in pixels of [0, 1]: a number, or a text as "8/255".
        norm: Of that distance: "linf" or "l2".
        attack_steps: Of PGD; None for 20.
        fail_if: Rules that fail the report where they hold: "imagenet-c:mce > 60".
        baseline: Report of an older run.
        fail_if_worse: Points by which a headline number may fall behind it.
    """

    data_root: Path | None = None
    suites: Sequence[str] | None = None
    benchmarks: Sequence[Path] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    max_images: int | None = None
    generate: bool = False
    seed: int = 0
    frost_dir: Path | None = None
    verify: bool = False
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    batch_size: int = 64
    workers: int = 0
    cache: Path | None = None
    dist_timeout: float = 1800.0
    output: Path | None = None
    overwrite: bool = False
    attacks: Sequence[str] = ()
    eps: str | float | None = None
    norm: str = "linf"
    attack_steps: int | None = None
    fail_if: Sequence[str] = ()
    baseline: Path | None = None
    fail_if_worse: float | None = None

    def __post_init__(self) -> None:
        """Take paths as texts too, and one name where several may stand."""
        for name in ("data_root", "frost_dir", "cache", "output", "baseline"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))
        for name in ("suites", "benchmarks", "attacks", "fail_if"):
            value = getattr(self, name)
            if isinstance(value, str | Path):
                object.__setattr__(self, name, [value])
        object.__setattr__(self, "benchmarks", [Path(file) for file in self.benchmarks])
        folders = {name: Path(folder) for name, folder in self.folders.items()}
        object.__setattr__(self, "folders", folders)

    def request(self) -> Request:
        """The benchmarks and where they lie.

        Raises:
            ConfigError: A name is unknown, a folder or value is wrong, or no benchmark is there.
        """
        for name, least in (
            ("max_images", 1), ("batch_size", 1), ("workers", 0), ("dist_timeout", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be at least {least}, got {value}.")
        if self.data_root is not None and not self.data_root.is_dir():
            raise ConfigError(f"--data-root: no folder {self.data_root}.")
        if self.frost_dir is not None:
            frost_photographs(self.frost_dir)
        device_named(self.device)
        own = [read_benchmark(file) for file in self.benchmarks]
        if len({row.name for row in own}) < len(own):
            raise ConfigError("--benchmark has two files of one name.")
        rows = choose(self.suites, own)
        self._check_folders(rows)
        generator = Generator(self.seed, self.frost_dir)
        folders = dict(self.folders)
        places = Places(self.data_root, self.generate, generator, folders, self.cache)
        named = self.suites is not None or bool(own)
        attacks = self._attacks()
        request = Request(rows, places, named, self.max_images, self.verify, attacks)
        if not any(places.source(row) for row in rows):
            looked = "; ".join(f"{row.name}: {places.looked(row)}" for row in rows)
            raise ConfigError(f"no benchmark is there. {looked}")
        return request

    def _attacks(self) -> list[Attack]:
        if not self.attacks:
            if self.eps is not None or self.attack_steps is not None or self.norm != "linf":
                raise ConfigError("--eps, --norm and --attack-steps go with --attack.")
            return []
        if self.eps is None:
            raise ConfigError("--attack needs --eps, in pixels of [0, 1], such as 4/255.")
        if self.attack_steps is not None and "pgd" not in self.attacks:
            raise ConfigError("--attack-steps goes with --attack pgd: AutoAttack has its own.")
        if self.dtype != torch.float32:
            what = str(self.dtype).removeprefix("torch.")
            raise ConfigError(
                f"--attack needs --dtype float32, got {what}: gradients that it rounds to nothing "
                "look like robustness."
            )
        steps = STEPS if self.attack_steps is None else self.attack_steps
        return [
            Attack.of(name, self.norm, self.eps, steps=steps, batch_size=self.batch_size)
            for name in dict.fromkeys(self.attacks)
        ]

    def _check_folders(self, rows: Sequence[Benchmark]) -> None:
        known = {*BENCHMARKS, *(row.name for row in rows)}
        for name, folder in self.folders.items():
            if name not in known:
                raise ConfigError(f"--folder has no suite named {name}; known: {', '.join(known)}.")
            if not folder.is_dir():
                raise ConfigError(f"--folder: no folder {folder} for {name}.")


def evaluate(
    model: nn.Module,
    transform: Transform | Mapping[str, Transform],
    data_root: Path | str | None = None,
    *,
    suites: Sequence[str] | None = None,
    name: str | None = None,
    channels: int = 3,
    **options: Any,
) -> Report:
    """Evaluate any model that answers images [B, C, H, W] with scores [B, classes].

    Args:
        model: It is put in eval mode meanwhile.
        transform: Image to tensor, the same for all benchmarks, or one for each protocol: "model"
            (resize and crop as the model is used to), "unchanged" (for images that are cropped
            already: ImageNet-C, C-bar, 3DCC, ImageNet-9), "paper". A second crop of such images
            gives another number; it is named beside it.
        data_root: Folder of the benchmarks' folders.
        suites: Names of benchmarks; None for all that are found.
        name: Of the model in the report; its class otherwise.
        channels: 3 for RGB, 1 for grey.
        **options: Fields of `Options`.

    Returns:
        The results that the command writes to report.json; `robustness.rules.metrics.metrics` makes
        the numbers of them.

    Raises:
        ConfigError: What is asked for cannot be done; one line says why.
    """
    # Texts are taken for paths there.
    asked = Options(data_root=data_root, suites=suites, **options)  # type: ignore[arg-type]
    if not callable(transform) and not transform:
        raise ConfigError("transform has none for any protocol.")
    request = asked.request()

    def protocol(kind: str, image_size: int | None) -> Protocol:
        chosen = transform if callable(transform) else transform.get(kind)
        if chosen is None:
            known = ", ".join(transform) if isinstance(transform, Mapping) else ""
            raise ConfigError(f"transform has none for the protocol {kind}: {known}.")
        return own_protocol(kind, chosen, image_size, channels=channels)

    first = next(row for row in request.benchmarks if request.places.source(row))
    with as_it_was(model):
        subject = make_subject(
            model,
            protocol,
            name=name or type(model).__name__,
            channels=channels,
            probed=(first.protocol, first.image_size),
        )
        return evaluate_subject(subject, request, asked)


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Give a model back as it came, however the block ends: modes and devices, module by module."""
    modes = [(module, module.training) for module in model.modules()]
    places = [
        (module, tensor.device)
        for module in model.modules()
        for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)][:1]
    ]
    try:
        yield
    finally:
        # Not `train`, which would reach all that is under a module, frozen parts too.
        for module, training in modes:
            module.training = training
        # From the whole to its parts: what lies elsewhere within a module goes there after it.
        devices = {device for _, device in places}
        for module, device in [(model, devices.pop())] if len(devices) == 1 else places:
            module.to(device)


def evaluate_subject(
    subject: Subject,
    request: Request,
    options: Options,
    said: Callable[[Report, list[Path]], None] | None = None,
) -> Report:
    """Evaluate and write what is asked for.

    Args:
        subject: The model.
        request: Of `options`.
        options: How it is run.
        said: Told of the report and its files, in the first process, before any process goes on.
    """
    ranks, borrowed = joined(options.device, options.dist_timeout)
    try:
        with in_contact(ranks):
            return _evaluated(subject, request, options, ranks, said)
    except LostRankError:
        borrowed = True  # to leave would wait for the lost one
        raise
    finally:
        if not borrowed:
            leave()


def _evaluated(
    subject: Subject,
    request: Request,
    options: Options,
    ranks: Ranks,
    said: Callable[[Report, list[Path]], None] | None,
) -> Report:
    loop = make_loop(subject, ranks, options)
    gates = Gates.of(options.fail_if, options.baseline, options.fail_if_worse)

    def check() -> None:
        expected = partial(expected_report, request, subject, loop.dtype)
        gates.check(expected, options.output)
        for flag, folder in (("--output", options.output), ("--cache", options.cache)):
            if folder is not None:
                check_folder(flag, folder)
        if options.output is not None:
            question = asked_of(subject, request, loop.dtype)
            claim(options.output, question, overwrite=options.overwrite)

    by_primary(ranks, check)
    report = run(request, subject, loop, Cache(options.cache), options.output)

    def finish() -> None:
        files = []
        asked = {row.name for row in request.benchmarks}
        report.gates = gates.judge(report, options.output, asked)
        if options.output is not None:
            files += write_report(report, options.output)
            files += plot_report(report, options.output)
            page = options.output / "report.html"
            write_atomically(page, to_html([report], [report.model["name"]]).encode())
            files.append(page)
        if said is not None:
            said(report, files)

    # No process leaves before the files are there: torchrun ends all when one leaves with gaps.
    by_primary(ranks, finish)
    return report


def make_loop(subject: Subject, ranks: Ranks, options: Options) -> Loop:
    """How the cells are run."""
    model = subject.model.to(ranks.device)
    return Loop(model, ranks, options.batch_size, options.workers, options.dtype)
