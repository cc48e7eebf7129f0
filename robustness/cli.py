"""The command `python -m robustness`."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import torch

from robustness import doctor
from robustness.api import evaluate_subject, make_loop
from robustness.data.benchmarks import Benchmark, choose
from robustness.data.own import read_benchmark
from robustness.data.sources import Places
from robustness.errors import ending
from robustness.gates.judged import Gates
from robustness.reporting.report import to_markdown
from robustness.rules.results import Report
from robustness.running.attacks import ATTACKS, NORMS, STEPS
from robustness.running.cache import Cache
from robustness.running.describe import describe
from robustness.running.loop import spare_workers
from robustness.running.options import Options
from robustness.running.run import expected_report
from robustness.running.subject import Subject, build_subject
from robustness.scores.capture import KEEPS
from vit_ls.config import WEIGHTS, WEIGHTS_HELP, ConfigError, mapping
from vit_ls.job import Ranks, device_named
from vit_ls.run import run_settings

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

GATE_FAILED = 3
"""Exit status of a report that does not pass."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, evaluate, write the report.

    Returns:
        0 for a complete answer, 1 for one with gaps, 2 for a user's mistake, 3 where a gate failed,
        130 after Ctrl-C.
    """
    args = _parser().parse_args(argv)
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    return ending("python -m robustness", lambda: (_doctor if args.doctor else _main)(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m robustness",
        description="Evaluate a timm model on ImageNet's robustness benchmarks.",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--model", help="a name that timm knows, ours included")
    model.add_argument("--checkpoint", type=Path, help="file of its weights")
    model.add_argument("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    model.add_argument("--pretrained", action="store_true", help="timm's released weights")
    model.add_argument("--random-weights", action="store_true", help="none: to try the suite")
    model.add_argument("--num-classes", type=int)
    model.add_argument("--img-size", type=int, help="side of the input")
    model.add_argument("--model-kwargs", nargs="+", default=[], metavar="KEY=VALUE")
    data = parser.add_argument_group("data")
    data.add_argument("--data-root", type=Path, help="folder of the benchmarks' folders")
    data.add_argument("--suites", nargs="+", metavar="NAME", help="default: all that are found")
    data.add_argument("--benchmark", nargs="+", type=Path, default=[], metavar="FILE.yaml",
                      help="benchmarks of one's own")  # fmt: skip
    data.add_argument("--folder", nargs="+", default=[], metavar="NAME=FOLDER",
                      help="benchmarks that lie elsewhere")  # fmt: skip
    data.add_argument("--verify", action="store_true",
                      help="know images by their bytes, not by size and time")  # fmt: skip
    data.add_argument("--max-images", type=int, help="a fixed subset of each cell")
    data.add_argument("--generate", action="store_true",
                      help="corrupt the validation set on the fly")  # fmt: skip
    data.add_argument("--seed", type=int, default=0, help="of the generated corruptions")
    data.add_argument("--frost-dir", type=Path, help="photographs of frost to generate with")
    attack = parser.add_argument_group("attacks on clean images")
    attack.add_argument("--attack", dest="attacks", nargs="+", default=[], metavar="NAME",
                        help=f"{', '.join(ATTACKS)} (extra attacks)")  # fmt: skip
    attack.add_argument("--eps", help="largest distance, in pixels of [0, 1]: 4/255 or 0.0157")
    attack.add_argument("--norm", default="linf", help=f"of it: {' or '.join(NORMS)}")
    attack.add_argument("--attack-steps", type=int, help=f"of PGD; default {STEPS}")
    gate = parser.add_argument_group("gates: exit status 3 where one fails")
    gate.add_argument("--fail-if", nargs="+", default=[], metavar="RULE",
                      help='such as "imagenet-c:mce > 60"; fails where it holds')  # fmt: skip
    gate.add_argument("--baseline", type=Path, metavar="report.json", help="of an older run")
    gate.add_argument("--fail-if-worse", type=float, metavar="POINTS",
                      help="how far a headline number may fall behind the baseline")  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument("--doctor", action="store_true", help="check the folders, without a model")
    how.add_argument("--dry-run", action="store_true", help="say what would be run")
    how.add_argument("--batch-size", type=int, default=64)
    how.add_argument("--workers", type=int, default=spare_workers(), help="processes that read")
    how.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    how.add_argument("--dtype", choices=_DTYPES, default="float32")
    how.add_argument("--dist-timeout", type=float, default=Options.dist_timeout,
                     help="seconds until a lost process ends the run")  # fmt: skip
    how.add_argument("--output", type=Path, help="default: output/robustness/MODEL-WEIGHTS")
    how.add_argument("--keep", choices=KEEPS, default="",
                     help="scores of each image, float16, for robustness.analyse")  # fmt: skip
    how.add_argument("--overwrite", action="store_true",
                     help="write where the report of another run lies")  # fmt: skip
    how.add_argument("--cache", type=Path, default=Path("output/robustness/cache"))
    return parser


def _main(args: argparse.Namespace) -> int:
    _check(args)
    options = _options(args)
    request = options.request()
    subject = _subject(args, request.benchmarks)
    if options.output is None:
        # Two checkpoints of one model are two models.
        name = f"{subject.name}-{subject.weights[:8]}".replace("/", "_")
        options = replace(options, output=Path("output/robustness") / name)
    if args.dry_run:
        loop = make_loop(subject, Ranks(device_named(args.device)), options)
        gates = Gates.of(options.fail_if, options.baseline, options.fail_if_worse)
        gates.check(partial(expected_report, request, subject, loop.dtype), options.output)
        said = describe(request, subject, loop, Cache(options.cache), options.output)
        sys.stdout.write("\n".join(said) + "\n")
        return 0
    report = evaluate_subject(subject, request, options, _say)
    for gate in report.gates:
        if gate.failed:
            sys.stderr.write(f"gate failed: {gate.asked}: {gate.found}\n")
    return GATE_FAILED if any(g.failed for g in report.gates) else int(report.incomplete)


def _check(args: argparse.Namespace) -> None:
    if args.model is None:
        raise ConfigError("--model is needed.")
    sources = [args.checkpoint is not None, args.pretrained, args.random_weights]
    if sum(sources) != 1:
        raise ConfigError("give one of --checkpoint FILE, --pretrained and --random-weights.")
    if args.weights != "best" and args.checkpoint is None:
        raise ConfigError("--weights needs --checkpoint FILE.")
    if args.img_size is not None and args.img_size < 1:
        raise ConfigError(f"--img-size must be at least 1, got {args.img_size}.")


def _options(args: argparse.Namespace) -> Options:
    same = {f.name for f in fields(Options)} - {"folders", "dtype", "benchmarks"}
    return Options(
        **{name: getattr(args, name) for name in same},
        benchmarks=args.benchmark,
        folders=dict(_folder(text) for text in args.folder),
        dtype=_DTYPES[args.dtype],
    )


def _folder(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise ConfigError(f"--folder must be NAME=FOLDER, got {text}.")
    return name, Path(folder)


def _subject(args: argparse.Namespace, rows: Sequence[Benchmark]) -> Subject:
    torch.manual_seed(0)
    classes = {row.num_classes[0] for row in rows}
    # A model of another benchmark's classes is asked for by name alone; ImageNet's must bring 1000.
    own_head = next(iter(classes)) if len(classes) == 1 and 1000 not in classes else None
    if args.checkpoint is not None and args.checkpoint.is_file() and run_settings(args.checkpoint):
        own_head = None  # a run knows how many it had
    return build_subject(
        args.model,
        checkpoint=args.checkpoint,
        weights=args.weights,
        pretrained=args.pretrained,
        num_classes=args.num_classes or own_head,
        img_size=args.img_size,
        **mapping(args.model_kwargs, "--model-kwargs"),
    )


def _doctor(args: argparse.Namespace) -> int:
    if args.data_root is None or not args.data_root.is_dir():
        raise ConfigError(f"--data-root: no folder {args.data_root}.")
    own = [read_benchmark(file) for file in args.benchmark]
    rows = choose(args.suites, own) if args.suites or own else doctor.all_rows()
    places = Places(args.data_root, folders=dict(_folder(text) for text in args.folder))
    findings = []
    for finding in doctor.examine(places, rows, workers=args.workers):
        findings.append(finding)
        verdict, name, line = finding
        sys.stdout.write(f"{verdict:6} {name}: {line}\n")
    return 0 if doctor.healthy(findings) else 1


def _say(report: Report, files: Sequence[Path]) -> None:
    sys.stdout.write(f"{to_markdown(report)}\nwritten: {', '.join(map(str, files))}\n")
    sys.stdout.flush()
