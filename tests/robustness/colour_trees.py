"""Trees in the benchmarks' layouts whose images say what the model answers to them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from robustness.data import labels
from robustness.data.benchmarks import BENCHMARKS
from robustness.data.sources import Places
from robustness.rules.protocols import protocol_for
from robustness.rules.results import Report
from robustness.running.cache import Cache
from robustness.running.loop import Loop
from robustness.running.plan import Request
from robustness.running.run import run
from robustness.running.subject import Subject, make_subject
from vit_ls.job import Ranks


class ReadsColour(nn.Module):
    """Answers with the class that the colour of the picture names."""

    def __init__(self) -> None:
        super().__init__()
        self.num_classes = 1000
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        red, green, _ = (x.mean(dim=(2, 3)) * 255).unbind(1)
        answer = (red // 8 * 32 + green // 8).long()
        return nn.functional.one_hot(answer, 1024)[:, :1000].float() + self.unused


def paint(path: Path, answer: int, size: int = 224) -> None:
    """A picture that the model takes for class `answer`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (answer // 32 * 8 + 4, answer % 32 * 8 + 4, 0)
    Image.new("RGB", (size, size), colour).save(path, format="PNG")


def film(path: Path, answers: list[int], side: int = 224) -> None:
    """A video whose frames the model takes for these classes."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        # lossless and without subsampled colours, so that the colours are exact
        stream = container.add_stream("libx264rgb", rate=1, options={"crf": "0"})
        stream.width = stream.height = side
        stream.pix_fmt = "rgb24"
        for answer in answers:
            colour = (answer // 32 * 8 + 4, answer % 32 * 8 + 4, 0)
            pixels = np.broadcast_to(np.array(colour, np.uint8), (side, side, 3)).copy()
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def wnid(index: int) -> str:
    return list(labels.wnid_to_index())[index]


CONFIG = {
    "input_size": (3, 224, 224),
    "interpolation": "bicubic",
    "mean": (0.0, 0.0, 0.0),
    "std": (1.0, 1.0, 1.0),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


def subject_of(model: nn.Module) -> Subject:
    """The model with images fed as they are, but for the protocols' resize and crop."""
    protocol = lambda name, side: protocol_for(name, CONFIG, side)  # noqa: E731
    return make_subject(model, protocol, name="reads_colour", origin="random")


class Bench:
    """Runs benchmarks of a small tree, with the number of images that makes a cell whole."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "data"
        self.root.mkdir()
        self.cache = Cache(folder / "cache")
        model = ReadsColour().eval()
        self.output = folder / "out"
        self.subject = subject_of(model)
        self.batch_size = 2

    def run(
        self,
        images: dict[str, int],
        *,
        max_images: int | None = None,
        verify: bool = False,
        generate: bool = False,
        **changes: object,
    ) -> Report:
        rows = [replace(BENCHMARKS[n], images=count, **changes) for n, count in images.items()]
        request = Request(rows, Places(self.root, generate), True, max_images, verify)
        loop = Loop(self.subject.model, Ranks(torch.device("cpu")), self.batch_size)
        return run(request, self.subject, loop, self.cache, self.output)
