"""Export a model to ONNX, OpenVINO, as a torch.export program or by AOTInductor, and check it.

    python -m vit_ls.export --model vil_ls_medium --out model.onnx
    python -m vit_ls.export --model vil_ls_medium --out model.onnx --int8
    python -m vit_ls.export --model vil_ls_medium --out model.xml --runtime openvino
    python -m vit_ls.export --model cvt_ls_13 --checkpoint output/RUN/last.pth.tar --out model.pt2

Batch size, height and width stay free. The file is read back and has to agree with PyTorch to 1e-4;
with 8-bit weights it has to agree with PyTorch's outputs in direction (`LEAST_COSINE`).
Exit status: 0 done, 1 the check failed, 2 unusable settings, 3 a package is missing.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from timm import create_model
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import vit_ls  # noqa: F401 - registers the models
from vit_ls import errors, job
from vit_ls.config import WEIGHTS, WEIGHTS_HELP, ConfigError, mapping
from vit_ls.errors import check_packages
from vit_ls.run import built, check_model_name, made

TOLERANCE = 1e-4
"""Largest difference from PyTorch, times the largest output where that is above 1."""

LEAST_COSINE = 0.98
"""Of the angle between outputs with weights in 8 bits and PyTorch's, for each image."""

_BATCHES = (1, 3)

Run = Callable[[Tensor], Sequence[Tensor]]
"""What was exported: images [B,Cin,H,W] to its outputs."""


@dataclass(frozen=True)
class Images:
    """The images [B,Cin,H,W] that an exported model takes.

    Args:
        in_chans: Cin.
        size: Height and width in pixels, as in training.
        any_size: Whether height and width are free.
    """

    in_chans: int
    size: tuple[int, int]
    any_size: bool = True

    def example(self) -> Tensor:
        """Images to trace with: where the size is free, nothing divides it, is equal or single."""
        height, width = self.size
        if self.any_size:
            height, width = max(2 * height, 128) + 1, max(3 * width, 192) - 1
        return torch.randn(2, self.in_chans, height, width)

    def free(self) -> dict[int, Any]:
        """The dimensions that stay free."""
        return dict.fromkeys((0, 2, 3) if self.any_size else (0,), Dim.DYNAMIC)

    def to_check(self) -> list[Tensor]:
        """Images of two batch sizes, and of two sizes where that is free."""
        height, width = self.size
        sizes = [self.size, (height + height // 2 + 3, width + 1)] if self.any_size else [self.size]
        return [torch.randn(b, self.in_chans, *size) for size in sizes for b in _BATCHES]


def to_program(model: nn.Module, images: Images) -> ExportedProgram:
    """The program of a model in eval mode, for `torch.export.save` and all that builds on it.

    Raises:
        ConfigError: the size is free, but images.size is below the smallest that the program takes:
            torch.export takes a dimension of 1 for fixed, so each stage needs two tokens, and two
            windows, on each axis.
    """
    with torch.no_grad():
        program = torch.export.export(model, (images.example(),), dynamic_shapes=(images.free(),))
    smallest = smallest_size(program)
    if smallest[0] > images.size[0] or smallest[1] > images.size[1]:
        raise ConfigError(
            f"--img-size must be at least {smallest} where it stays free, got {images.size}; "
            "fix it with --static-size."
        )
    return program


def smallest_size(program: ExportedProgram) -> tuple[int, int]:
    """Smallest height and width in pixels that a program takes."""
    (images,) = (
        node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs
    )
    ranges = program.range_constraints
    height, width = (
        int(ranges[side.node.expr].lower) if isinstance(side, torch.SymInt) else side
        for side in images.meta["val"].shape[2:]
    )
    return height, width


def write_program(model: nn.Module, images: Images, path: Path) -> Run:
    """Write a `.pt2` file, which `torch.export.load` reads."""
    torch.export.save(to_program(model, images), path)
    run = torch.export.load(path).module()
    return lambda x: _as_list(run(x))


def write_compiled(model: nn.Module, images: Images, path: Path) -> Run:
    """Write a `.pt2` package of AOTInductor for this machine's kind of processor."""
    inductor: Any = torch._inductor
    inductor.aoti_compile_and_package(to_program(model, images), package_path=str(path))
    run = inductor.aoti_load_package(str(path))
    return lambda x: _as_list(run(x))


def write_onnx(model: nn.Module, images: Images, path: Path) -> Run:
    """Write an `.onnx` file; its input is "images", its outputs are "logits" or "map_0" and on."""
    import onnxruntime

    example = images.example()
    with torch.no_grad():
        outputs = _as_list(model(example[:, :, : images.size[0], : images.size[1]]))
    names = ["logits"] if len(outputs) == 1 else [f"map_{i}" for i in range(len(outputs))]
    torch.onnx.export(
        model,
        (example,),
        path,
        dynamo=True,
        dynamic_shapes=(images.free(),),
        input_names=["images"],
        output_names=names,
        external_data=False,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: [torch.from_numpy(y) for y in session.run(None, {"images": x.numpy()})]


def write_int8(model: nn.Module, images: Images, path: Path) -> Run:
    """Write an `.onnx` file whose products have weights in 8 bits, and inputs at run time.

    A scale for each column of a weight; the products of attention stay in float32.
    """
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory() as folder:
        plain, folded = Path(folder) / "float32.onnx", Path(folder) / "folded.onnx"
        write_onnx(model, images, plain)
        # the exporter leaves large weights behind a transpose, which hides them from the quantizer
        quant_pre_process(plain, folded, skip_symbolic_shape=True, skip_onnx_shape=True)
        graph = onnx.load(folded)
        # the quantizer infers the shapes anew, and refuses those that the exporter noted
        del graph.graph.value_info[:]
        onnx.save(graph, folded)
        quantize_dynamic(folded, path, weight_type=QuantType.QInt8, per_channel=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: [torch.from_numpy(y) for y in session.run(None, {"images": x.numpy()})]


def write_openvino(model: nn.Module, images: Images, path: Path) -> Run:
    """Write an `.xml` file and its weights, a `.bin` file beside it, for OpenVINO.

    It keeps float32 weights; checked in float32, which is not what OpenVINO computes in by default
    on a processor with bfloat16 (`INFERENCE_PRECISION_HINT`).
    """
    import openvino

    core = openvino.Core()
    with TemporaryDirectory() as folder:
        plain = Path(folder) / "float32.onnx"
        write_onnx(model, images, plain)
        openvino.save_model(core.read_model(plain), path, compress_to_fp16=False)
    compiled = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: [torch.from_numpy(y.copy()) for y in compiled(x.numpy()).values()]


def cosine(run: Run, model: nn.Module, inputs: Sequence[Tensor]) -> float:
    """The least cosine, over images, of the angle between two models' outputs."""
    least = 1.0
    with torch.no_grad():
        for x in inputs:
            for actual, expected in zip(run(x), _as_list(model(x)), strict=True):
                found = torch.cosine_similarity(actual.flatten(1), expected.flatten(1)).min()
                least = min(least, found.item()) if found.isfinite() else -1.0
    return least


def difference(run: Run, model: nn.Module, inputs: Sequence[Tensor]) -> float:
    """Largest difference between two models' outputs, over the largest output if that is above 1.

    Raises:
        ValueError: they differ in number or shape.
    """
    largest = 0.0
    with torch.no_grad():
        for x in inputs:
            for actual, expected in zip(run(x), _as_list(model(x)), strict=True):
                if actual.shape != expected.shape:
                    shapes = f"{tuple(actual.shape)} for {tuple(expected.shape)}"
                    raise ValueError(f"outputs must have the shapes of the model's, got {shapes}.")
                scale = max(1.0, expected.abs().max().item())
                largest = max(largest, (actual - expected).abs().max().item() / scale)
    return largest


def _as_list(outputs: Any) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def _parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("vit_ls.export", description="Export a model and check it.")
    add = parser.add_argument
    add("--model", required=True, help="a model that timm knows")
    add(
        "--out",
        required=True,
        type=Path,
        help="FILE.onnx, FILE.xml or FILE.pt2 (torch.export)",
    )
    add("--checkpoint", type=Path, help="weights, of this package's runs or of timm's")
    add("--weights", choices=WEIGHTS, default="best", help=WEIGHTS_HELP)
    add("--model-kwargs", nargs="+", default=[], metavar="KEY=VALUE", help="more arguments")
    add("--num-classes", type=int, help="default: the checkpoint's, or the model's")
    add("--img-size", type=int, nargs=2, metavar=("H", "W"), help="default: the model's")
    add("--static-size", action="store_true", help="fix height and width to --img-size")
    add("--features-only", action="store_true", help="the feature maps instead of the logits")
    add("--compile", action="store_true", help="compile FILE.pt2 with AOTInductor")
    add("--runtime", choices=("openvino",), help="write FILE.xml for OpenVINO")
    add("--int8", action="store_true", help="weights of FILE.onnx in 8 bits")
    return parser.parse_args(argv)


_NEEDS = {
    # suffix: the extra and what it brings
    ".onnx": ("export", ("onnx", "onnxscript", "onnxruntime")),
    ".xml": ("openvino", ("onnx", "onnxscript", "onnxruntime", "openvino")),
    ".pt2": ("", ()),
}


def _writer(args: argparse.Namespace) -> Callable[[nn.Module, Images, Path], Run]:
    suffix = args.out.suffix
    if suffix not in _NEEDS:
        raise ConfigError(f"--out must end in .onnx, .xml or .pt2, got {args.out}.")
    if not args.out.parent.is_dir():
        raise ConfigError(f"--out must be in a folder that exists, got {args.out}.")
    if args.compile and suffix != ".pt2":
        raise ConfigError(f"--compile writes a .pt2 file, got --out {args.out}.")
    if args.int8 and suffix != ".onnx":
        raise ConfigError(f"--int8 writes an .onnx file, got --out {args.out}.")
    if (args.runtime == "openvino") != (suffix == ".xml"):
        raise ConfigError(f"--runtime openvino and an .xml file go together, got --out {args.out}.")
    extra, packages = _NEEDS[suffix]
    check_packages(f"--out {args.out}", *packages, extra=extra)
    if suffix == ".pt2":
        return write_compiled if args.compile else write_program
    if suffix == ".xml":
        return write_openvino
    return write_int8 if args.int8 else write_onnx


def _model(args: argparse.Namespace) -> tuple[nn.Module, str]:
    """The model in eval mode, and what is to be said of its weights."""
    check_model_name(args.model)
    if args.num_classes is not None and args.num_classes < 0:
        raise ConfigError(f"--num-classes must not be negative, got {args.num_classes}.")
    if args.img_size and min(args.img_size) < 1:
        raise ConfigError(f"--img-size must be positive, got {args.img_size}.")
    kwargs = mapping(args.model_kwargs, "--model-kwargs")
    if args.num_classes is not None:
        kwargs["num_classes"] = args.num_classes
    if args.checkpoint:
        model, which = built(args.checkpoint, args.model, weights=args.weights, changes=kwargs)
        return model, f", {which} weights"
    if args.weights != "best":
        raise ConfigError("--weights needs --checkpoint FILE.")
    model = made(args.model, lambda: create_model(args.model, **kwargs))
    return model.eval(), ", random weights"


def main(argv: Sequence[str] | None = None) -> None:
    """Export one model."""
    args = _parse_args(argv)
    write = _writer(args)
    model: Any
    model, weights = _model(args)
    size, in_chans = model.pretrained_cfg["input_size"][1:], model.in_chans
    images = Images(in_chans, tuple(args.img_size or size), any_size=not args.static_size)
    if args.features_only:
        if not hasattr(model, "forward_intermediates"):
            raise ConfigError(f"--features-only needs a model with stages, got {args.model}.")
        model = FeatureGetterNet(model, out_indices=tuple(range(len(model.feature_info)))).eval()
    inputs = images.to_check()
    run = write(model, images, args.out)
    sizes = ", ".join("x".join(map(str, x.shape)) for x in inputs)
    found = difference(run, model, inputs)
    if args.int8:
        least = cosine(run, model, inputs)
        if not least >= LEAST_COSINE:
            raise errors.RunFailedError(
                f"{args.out} must agree with PyTorch to a cosine of {LEAST_COSINE:g}, got "
                f"{least:.4f}."
            )
        sys.stdout.write(
            f"{args.out}: differs from PyTorch by {found:.1e}, cosine {least:.4f}, "
            f"on images {sizes}{weights}\n"
        )
        return
    if not found <= TOLERANCE:
        raise errors.RunFailedError(
            f"{args.out} must agree with PyTorch to {TOLERANCE:g}, differs by {found:.1e}."
        )
    sys.stdout.write(f"{args.out}: agrees with PyTorch to {found:.1e} on images {sizes}{weights}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("vit_ls.export", main))
