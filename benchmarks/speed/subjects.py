"""What is timed: models, and how a forward or a training step of each is run in each setting."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

import vit_ls
from benchmarks.speed.plain import plain
from vit_ls.export import Images, write_onnx

SETTINGS = ("float32", "medium", "bf16", "compile", "onnx", "openvino", "openvino_bf16")
MODES = ("forward", "step")
RUNTIMES = ("onnx", "openvino", "openvino_bf16")
CLASSES = 1000
THIRD = (2, 5, 8, 11)


class Subject(NamedTuple):
    """A model, and what is done to it before it is timed."""

    model: str
    options: dict[str, Any] = {}  # noqa: RUF012  never written to
    change: str = ""
    """"plain" for the plain formulation, "fused" for `vit_ls.fuse`."""
    replaced: tuple[int, ...] | None = None
    """Windows of 14 take the place of its attention, but for that of these blocks."""
    sized: bool = True
    """Whether it asks for the size of its images."""


SUBJECTS = {
    "vil_ls_medium": Subject("vil_ls_medium"),
    "vil_ls_medium fused": Subject("vil_ls_medium", change="fused"),
    "vil_ls_medium plain": Subject("vil_ls_medium", change="plain"),
    "vil_ls_small": Subject("vil_ls_small"),
    "vil_ls_small long_short": Subject("vil_ls_small", {"attention": "long_short"}),
    "swin_small": Subject("swin_small_patch4_window7_224"),
    "swin_small fused": Subject("swin_small_patch4_window7_224", change="fused"),
    "cst_vil_medium": Subject("cst_vil_medium"),
    "swin_base": Subject("swin_base_patch4_window7_224"),
    "hiera_small": Subject("hiera_small_224"),
    "cvt_ls_13": Subject("cvt_ls_13"),
    "cvt_ls_21": Subject("cvt_ls_21"),
    "cvt_ls_21 fused": Subject("cvt_ls_21", change="fused"),
    "cvt_ls_21 plain": Subject("cvt_ls_21", change="plain"),
    "cvt_21": Subject("cvt_ls_21", {"attention": "full"}),
    "cvt_21 fused": Subject("cvt_ls_21", {"attention": "full"}, "fused"),
    "cst_vit_small_patch16": Subject("cst_vit_small_patch16_224"),
    "deit_small": Subject("deit_small_patch16_224"),
    "vit_small": Subject("vit_small_patch16_224"),
    "vit_small replaced": Subject("vit_small_patch16_224", replaced=()),
    "vit_small third kept": Subject("vit_small_patch16_224", replaced=THIRD),
    "dinov3_small": Subject("vit_small_patch16_dinov3", {"num_classes": CLASSES}),
    "dinov3_small replaced": Subject(
        "vit_small_patch16_dinov3", {"num_classes": CLASSES}, replaced=()
    ),
    "dinov3_small third kept": Subject(
        "vit_small_patch16_dinov3", {"num_classes": CLASSES}, replaced=THIRD
    ),
    "convnext_small": Subject("convnext_small", sized=False),
}
"""cvt_21 is the paper's baseline: full attention whose keys and values have no stride."""


def create(subject: Subject, size: int, device: str) -> nn.Module:
    """The model with position tables of its own for images of this side."""
    sized: dict[str, Any] = {"img_size": size} if subject.sized else {}
    with torch.device(device):
        model = timm.create_model(subject.model, **sized, **subject.options)
        if subject.replaced is not None:
            vit_ls.replace_attention(model, vit_ls.LongShort(14, 0), keep=subject.replaced)
        return model


def run(
    subject: Subject, setting: str, mode: str, images: Tensor, onnx_dir: Path
) -> tuple[Callable[[], Any], nn.Module]:
    """One forward or one training step, to be called again and again, and the model.

    Raises:
        ValueError: a training step in a runtime for inference, or of a model fused for inference.
    """
    if mode == "step" and (setting in RUNTIMES or subject.change == "fused"):
        raise ValueError(f"a step trains, which {setting} or a fused model does not.")
    model = create(subject, images.shape[-1], images.device.type).train(mode == "step")
    if subject.change == "fused":
        model = vit_ls.fuse(model)
    return call_of(model, subject, setting, mode, images, onnx_dir), model


def call_of(
    model: nn.Module, subject: Subject, setting: str, mode: str, images: Tensor, onnx_dir: Path
) -> Callable[[], Any]:
    """As `run`, of a model that is there."""
    if setting in RUNTIMES:
        path = onnx_dir / f"{subject.model}-{subject.change}-{_identity(subject, images)}.onnx"
        return _in_runtime(model, setting, path, images)
    if mode == "forward":
        return _forward(model, subject, setting, images)
    return _step(model, subject, setting, images)


def _forward(model: nn.Module, subject: Subject, setting: str, images: Tensor) -> Callable[[], Any]:
    if setting == "bf16":
        model, images = model.to(torch.bfloat16), images.to(torch.bfloat16)
    called = torch.compile(model) if setting == "compile" else model

    def forward() -> None:
        with torch.inference_mode(), _precision(setting), _formulation(subject):
            called(images)

    return forward


def _step(model: nn.Module, subject: Subject, setting: str, images: Tensor) -> Callable[[], Any]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    labels = torch.randint(CLASSES, images.shape[:1], device=images.device)
    called = torch.compile(model) if setting == "compile" else model
    autocast = torch.autocast(images.device.type, torch.bfloat16, enabled=setting == "bf16")

    def step() -> None:
        with _precision(setting), _formulation(subject):
            with autocast:
                logits = called(images)
            nn.functional.cross_entropy(logits.float(), labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def _formulation(subject: Subject) -> AbstractContextManager[None]:
    return plain() if subject.change == "plain" else nullcontext()


@contextmanager
def _precision(setting: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if setting == "medium" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _in_runtime(model: nn.Module, setting: str, path: Path, images: Tensor) -> Callable[[], Any]:
    if not path.exists():
        write_onnx(model, Images(3, (images.shape[2], images.shape[3]), any_size=False), path)
    threads = torch.get_num_threads()
    array = images.numpy()
    if setting == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, {"images": array})
    import openvino

    core = openvino.Core()
    graph = core.read_model(path)
    graph.reshape(list(images.shape))
    precision = "bf16" if setting == "openvino_bf16" else "f32"
    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(graph, "CPU", hints)
    return lambda: compiled(array)


def _identity(subject: Subject, images: Tensor) -> str:
    """Of all that an ONNX file of random weights depends on."""
    found = hashlib.sha256(f"{subject} {tuple(images.shape)} {torch.__version__}".encode())
    for path in sorted(Path(vit_ls.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
