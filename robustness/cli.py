"""The command `python -m robustness`."""

import argparse
import ast
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from robustness.corruptions.weather import frost_photographs
from robustness.data import doctor
from robustness.data.benchmarks import Benchmark, choose
from robustness.data.images import Generator
from robustness.data.sources import Places
from robustness.errors import UsageError
from robustness.reporting.plots import plot_report
from robustness.reporting.report import to_markdown, write_report
from robustness.running.cache import Cache
from robustness.running.loop import Loop, Team, spare_workers
from robustness.running.run import Request, describe, run
from robustness.running.subject import Subject, build_subject

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, evaluate, write the report.

    Returns:
        0 for a complete answer, 1 for one with gaps, 2 for a user's mistake.
    """
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        return _doctor(args) if args.doctor else _main(args)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m robustness",
        description="Evaluate a timm model on ImageNet's robustness benchmarks.",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--model", help="a name that timm knows, ours included")
    model.add_argument("--checkpoint", type=Path, help="file of its weights")
    model.add_argument("--pretrained", action="store_true", help="timm's released weights")
    model.add_argument("--random-weights", action="store_true", help="none: to try the suite")
    model.add_argument("--num-classes", type=int)
    model.add_argument("--img-size", type=int, help="side of the input")
    model.add_argument("--model-kwargs", nargs="+", default=[], metavar="KEY=VALUE")
    data = parser.add_argument_group("data")
    data.add_argument("--data-root", type=Path, help="folder of the benchmarks' folders")
    data.add_argument("--suites", nargs="+", metavar="NAME", help="default: all that are found")
    data.add_argument("--max-images", type=int, help="a fixed subset of each cell")
    data.add_argument("--generate", action="store_true",
                      help="corrupt the validation set on the fly")  # fmt: skip
    data.add_argument("--seed", type=int, default=0, help="of the generated corruptions")
    data.add_argument("--frost-dir", type=Path, help="photographs of frost to generate with")
    how = parser.add_argument_group("how")
    how.add_argument("--doctor", action="store_true", help="check the folders, without a model")
    how.add_argument("--dry-run", action="store_true", help="say what would be run")
    how.add_argument("--batch-size", type=int, default=64)
    how.add_argument("--workers", type=int, default=spare_workers(), help="processes that read")
    how.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    how.add_argument("--dtype", choices=_DTYPES, default="float32")
    how.add_argument("--output", type=Path, help="default: output/robustness/MODEL")
    how.add_argument("--cache", type=Path, default=Path("output/robustness/cache"))
    how.add_argument("--latex", action="store_true", help="report.tex too")
    return parser


def _main(args: argparse.Namespace) -> int:
    _check(args)
    rows = choose(args.suites)
    generator = Generator(args.seed, args.frost_dir)
    places = Places(args.data_root, args.generate, generator)
    request = Request(rows, places, args.suites is not None, args.max_images)
    if not any(places.source(row) for row in rows):
        looked = "; ".join(f"{row.name}: {places.looked(row)}" for row in rows)
        raise UsageError(f"no benchmark is there. {looked}")
    subject = _subject(args, rows)
    team = Team.join(args.device)
    try:
        if team.rank > 0:
            logging.getLogger("robustness").setLevel(logging.WARNING)
        model = subject.model.to(team.device)
        loop = Loop(model, team, args.batch_size, args.workers, _DTYPES[args.dtype])
        cache = Cache(args.cache)
        if args.dry_run:
            lines = describe(request, subject, loop, cache)
            _say(team, "\n".join(lines))
            return 0
        report = run(request, subject, loop, cache)
        if team.rank == 0:
            output = args.output or Path("output/robustness") / subject.name
            files = write_report(report, output, latex=args.latex) + plot_report(report, output)
            _say(team, f"{to_markdown(report)}\nwritten: {', '.join(map(str, files))}")
        return 1 if report.incomplete else 0
    finally:
        team.leave()


def _check(args: argparse.Namespace) -> None:
    if args.model is None:
        raise UsageError("--model is needed.")
    sources = [args.checkpoint is not None, args.pretrained, args.random_weights]
    if sum(sources) != 1:
        raise UsageError("give one of --checkpoint FILE, --pretrained and --random-weights.")
    for name, least in (("max_images", 1), ("batch_size", 1), ("workers", 0), ("img_size", 1)):
        value = getattr(args, name)
        if value is not None and value < least:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} must be at least {least}, got {value}.")
    if args.data_root is not None and not args.data_root.is_dir():
        raise UsageError(f"--data-root: no folder {args.data_root}.")
    if args.frost_dir is not None:
        frost_photographs(args.frost_dir)
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {args.device}: there is no CUDA device.")


def _subject(args: argparse.Namespace, rows: Sequence[Benchmark]) -> Subject:
    torch.manual_seed(0)
    classes = {row.num_classes for row in rows}
    # A model of another benchmark's classes is asked for by name alone; ImageNet's must bring 1000.
    own_head = next(iter(classes)) if len(classes) == 1 and 1000 not in classes else None
    return build_subject(
        args.model,
        checkpoint=args.checkpoint,
        pretrained=args.pretrained,
        num_classes=args.num_classes or own_head,
        img_size=args.img_size,
        **dict(_keyword(text) for text in args.model_kwargs),
    )


def _keyword(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--model-kwargs must be KEY=VALUE, got {text}.")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _doctor(args: argparse.Namespace) -> int:
    if args.data_root is None or not args.data_root.is_dir():
        raise UsageError(f"--data-root: no folder {args.data_root}.")
    rows = choose(args.suites) if args.suites else doctor.all_rows()
    findings = []
    for finding in doctor.examine(args.data_root, rows, workers=args.workers):
        findings.append(finding)
        verdict, name, line = finding
        sys.stdout.write(f"{verdict:6} {name}: {line}\n")
    return 0 if doctor.healthy(findings) else 1


def _say(team: Team, text: str) -> None:
    if team.rank == 0:
        sys.stdout.write(text + "\n")
