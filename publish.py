"""Make a folder for the Hugging Face Hub of a checkpoint of train.py, and upload it if asked to.

    python publish.py --checkpoint output/RUN/model_best.pth.tar --name NAME --out FOLDER
    python publish.py ... --report report.json --push OWNER/NAME

The folder holds weights (safetensors), config.json and a model card, by timm's functions and
configs/model_card.md; `timm.create_model("local-dir:FOLDER", pretrained=True)` loads it.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from timm.models import save_for_hf
from torch import nn

import vit_ls  # noqa: F401  registers the models
from robustness.reporting.report import read_report, to_markdown
from robustness.running.identity import weights_digest
from vit_ls import data, errors, job, run
from vit_ls.config import (
    WEIGHTS,
    WEIGHTS_HELP,
    ConfigError,
    TrainConfig,
    ValidateConfig,
    asdict,
    inherit,
)
from vit_ls.count import count_params
from vit_ls.errors import blamed_on
from vit_ls.style import markdown_table

TEMPLATE = Path(__file__).parent / "configs" / "model_card.md"
_PAPERS = {
    "cst_": "Composite Slice Transformer, ICLR 2023",
    "cvt_ls": "arXiv:2107.02192",
    "vil_ls": "arXiv:2107.02192",
    "cvt_": "arXiv:2103.15808",
    "vil_": "arXiv:2103.15358",
}
_WHICH = {"raw": "the weights of the run", "ema": "the average of the run's weights"}
_OF_ONE_MACHINE = ("_dir", "_path", "data", "output", "experiment", "resume", "checkpoint")
"""Settings that name a place on one machine; no recipe, and nobody else's business."""


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("publish.py", description="Make a folder for the Hub.")
    parser.add_argument("--checkpoint", type=Path, required=True, help="of train.py")
    parser.add_argument("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    parser.add_argument("--out", type=Path, required=True, help="the folder, new or empty")
    parser.add_argument("--name", required=True, help="of the model on its card")
    parser.add_argument("--report", type=Path, help="report.json of `python -m robustness`")
    parser.add_argument("--license", default="apache-2.0", help="of the weights")
    parser.add_argument("--push", metavar="OWNER/NAME", help="upload the folder there")
    parser.add_argument("--private", action="store_true", help="in a private repository")
    return parser.parse_args(argv)


def load(checkpoint: Path, weights: str) -> tuple[Any, ValidateConfig]:
    """The model of a run with its weights, and the settings to evaluate it with."""
    if not run.run_settings(checkpoint):
        raise ConfigError(f"--checkpoint must be of train.py, got {checkpoint}.")
    model = run.load(checkpoint, weights=weights)
    return model, inherit(ValidateConfig(), set(), dict(model.run.config))


def robustness_of(model: nn.Module, report: Path | None) -> str:
    """The tables of a report, which must be of these weights."""
    if report is None:
        return "Not measured."
    try:
        read = read_report(report)
    except ConfigError as error:
        raise ConfigError(f"--report: {error}") from error
    digest = weights_digest(model)
    if read.model["weights"] != digest:
        raise ConfigError(
            f"--report must be of the checkpoint's weights, sha256 {digest[:12]}, "
            f"got one of {read.model['weights'][:12]}: {report}."
        )
    return to_markdown(read).partition("\n")[2].strip().replace("\n## ", "\n### ")


def card(args: argparse.Namespace, model: Any, config: ValidateConfig) -> str:
    """The model card."""
    row = run.scores(args.checkpoint, model.run.weights)
    results = markdown_table(("", ""), [(k, str(v)) for k, v in row.items()], numbers=(1,))
    prefix = max((p for p in _PAPERS if p in config.model), key=len, default=None)
    fields = {
        "name": args.name,
        "architecture": config.model,
        "address": f"hf-hub:{args.push}" if args.push else f"local-dir:{args.out}",
        "classes": model.num_classes,
        "params": f"{count_params(model) / 1e6:.2f}",
        "size": " x ".join(map(str, data.input_config(config, model)["input_size"][1:])),
        "license": args.license,
        "results": f"As the run recorded it for these weights.\n\n{results}"
        if row
        else "Not measured: the checkpoint was written within an epoch.",
        "recipe": f"`train.py` with\n\n```\n{recipe(model.run.config)}\n```",
        "robustness": robustness_of(model, args.report),
        "digest": weights_digest(model),
        "which": _WHICH[model.run.weights],
        "citation": _PAPERS[prefix] if prefix else "The architecture's own paper.",
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(fields)


def recipe(settings: Mapping[str, Any]) -> str:
    """The settings of the run that are not the defaults, without the places of one machine."""
    usual = asdict(TrainConfig())
    return "\n".join(
        f"{name}: {value}"
        for name, value in sorted(settings.items())
        if value != usual.get(name) and not name.endswith(_OF_ONE_MACHINE)
    )


def write(folder: Path, model: Any, config: ValidateConfig, text: str, classes: list[str]) -> None:
    """The files of the folder."""
    save_for_hf(
        model,
        str(folder),
        model_config={"label_names": classes} if classes else None,
        safe_serialization=True,
        data_config=data.input_config(config, model),
    )
    one_number_of_classes(folder)
    (folder / "README.md").write_text(text, encoding="utf-8")


def one_number_of_classes(folder: Path | str) -> None:
    """Let config.json say the number of classes once.

    timm writes it beside the arguments of the model too, where it changes nothing for timm; the
    wrapper of transformers (5.23) passes both on, and fails.
    """
    path = Path(folder) / "config.json"
    settings = json.loads(path.read_text())
    settings.get("model_args", {}).pop("num_classes", None)
    path.write_text(json.dumps(settings, indent=2) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Write the folder, and upload it."""
    args = _parse_args(argv)
    if args.out.exists() and not (args.out.is_dir() and not any(args.out.iterdir())):
        raise ConfigError(f"--out must be a new or an empty folder, got {args.out}.")
    model, config = load(args.checkpoint, args.weights)
    text = card(args, model, config)
    classes = model.run.classes or {}
    write(args.out, model, config, text, sorted(classes, key=lambda name: classes[name]))
    where = str(args.out)
    if args.push:
        from huggingface_hub import HfApi

        api = HfApi()
        with blamed_on(f"--push {args.push}; {args.out} is whole", errors.RunFailedError):
            api.create_repo(args.push, private=args.private, exist_ok=True)
            where = str(api.upload_folder(repo_id=args.push, folder_path=args.out))
    sys.stdout.write(f"weights: {model.run.weights}\n{where}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("publish.py", main))
