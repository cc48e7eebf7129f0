"""The suite from Python: any nn.Module, any transform. The command is a thin layer over this."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from robustness.files import check_folder, write_atomically
from robustness.gates.judged import Gates
from robustness.reporting.page import to_html
from robustness.reporting.plots import plot_report
from robustness.reporting.report import write_report
from robustness.rules.protocols import Protocol, own_protocol
from robustness.rules.results import Report
from robustness.running.cache import Cache
from robustness.running.loop import Loop, joined
from robustness.running.options import Options
from robustness.running.plan import Request
from robustness.running.question import asked_of, claim
from robustness.running.run import expected_report, run
from robustness.running.subject import Subject, make_subject
from robustness.scores.capture import check_features, parts
from vit_ls.config import ConfigError
from vit_ls.job import LostRankError, Ranks, by_primary, in_contact, leave

Transform = Callable[[Image.Image], torch.Tensor]


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
        if options.keep and options.output is None:
            raise ConfigError("--keep needs --output, where the scores go.")
        if "features" in loop.keep:
            check_features(subject.model, subject.example)
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
    keep = parts(options.keep)
    return Loop(model, ranks, options.batch_size, options.workers, options.dtype, keep)
