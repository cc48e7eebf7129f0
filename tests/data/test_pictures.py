"""Every program reads a picture with one function, which gives what timm gives, or scales it."""

import ast
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import runs
from PIL import Image
from timm.data import ImageDataset

from robustness.data.images import read_file
from robustness.data.listing import Sample
from vit_ls.config import TrainConfig
from vit_ls.data import open_images
from vit_ls.data.pictures import PictureError, read_picture
from vit_ls.visualize.images import read_rgb

ROOT = Path(__file__).parents[2]
ROOMS = (
    "vit_ls",
    "robustness",
    "papers",
    "benchmarks",
    "examples",
    "publish.py",
    "train.py",
    "validate.py",
)
# The reader, and what decodes the JPEG that it has just encoded.
OPENS = {
    *("vit_ls/data/pictures.py", "robustness/corruptions/digital.py"),
    "vit_ls/style.py",  # a plot of its own, from memory
}
TURNED = 6  # EXIF: turn by a quarter

DEPTHS = {
    "png16": ("png", np.array([[0, 257, 32768, 65535]], np.uint16), [0, 1, 128, 255]),
    "tiff16": ("tiff", np.array([[0, 257, 32768, 65535]], np.uint16), [0, 1, 128, 255]),
    "tiff32": ("tiff", np.array([[0, 257, 32768, 65535]], np.int32), [0, 1, 128, 255]),
    "share": ("tiff", np.array([[0, 0.25, 0.5, 1]], np.float32), [0, 64, 128, 255]),
    "float": ("tiff", np.array([[0, 1, 128, 255]], np.float32), [0, 1, 128, 255]),
}


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kind", DEPTHS)
def test_deep_grey_is_scaled(tmp_path: Path, kind: str, mode: str) -> None:
    ending, values, wanted = DEPTHS[kind]
    file = tmp_path / f"x.{ending}"
    Image.fromarray(values).save(file)
    pixels = np.asarray(read_picture(file, mode))
    assert pixels.reshape(4, -1)[:, 0].tolist() == wanted
    assert read_picture(file, mode).mode == mode


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0, 70000]], np.int32),
        np.array([[-1, 5]], np.int32),
        np.array([[0, np.nan]], np.float32),
        np.array([[0, 256]], np.float32),
    ],
)
def test_grey_without_a_known_scale_is_no_picture(tmp_path: Path, values: np.ndarray) -> None:
    Image.fromarray(values).save(tmp_path / "x.tiff")
    with pytest.raises(PictureError, match=r"must be of 16 bits or floats from 0 to 1 or 255, got"):
        read_picture(tmp_path / "x.tiff")


def _picture(mode: str) -> Image.Image:
    rows, columns = np.indices((24, 32))
    planes = np.stack([rows * 9, columns * 7, rows * columns, (rows + columns) * 4], -1)
    return Image.fromarray((planes % 256).astype(np.uint8), "RGBA").convert(mode)


KINDS = {
    "1": ("1", "png", {}),
    "L": ("L", "png", {}),
    "LA": ("LA", "png", {}),
    "P": ("P", "png", {}),
    "transparent palette": ("P", "png", {"transparency": 3}),
    "RGBA": ("RGBA", "png", {}),
    "CMYK": ("CMYK", "jpg", {}),
    "YCbCr": ("YCbCr", "jpg", {}),
    "turned": ("RGB", "jpg", {"exif": TURNED}),
}


# timm leaves the file to the garbage collector; Pillow warns of what both do.
@pytest.mark.filterwarnings("ignore:Palette images with Transparency:UserWarning")
@pytest.mark.filterwarnings("ignore:.*FileIO:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_deep_is_as_timm_reads_it(tmp_path: Path, kind: str, mode: str) -> None:
    was, ending, how = KINDS[kind]
    if "exif" in how:
        exif = Image.Exif()
        exif[0x0112] = how["exif"]
        how = {"exif": exif}
    (tmp_path / "train" / "0").mkdir(parents=True)
    file = tmp_path / "train" / "0" / f"x.{ending}"
    _picture(was).save(file, **how)
    theirs = ImageDataset(str(tmp_path / "train"), input_img_mode=mode)[0][0]
    config = TrainConfig(data_dir=str(tmp_path), in_chans=1 if mode == "L" else 3)
    ours = open_images(config, "train", training=True).dataset[0][0]
    for picture in (ours, read_picture(file, mode)):
        assert picture.size == (32, 24)
        assert np.array_equal(np.asarray(picture), np.asarray(theirs))


def test_a_picture_is_turned_where_that_is_asked_for(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = TURNED
    _picture("RGB").save(tmp_path / "x.png", exif=exif)
    assert read_picture(tmp_path / "x.png").size == (32, 24)
    assert read_picture(tmp_path / "x.png", turn=True).size == (24, 32)


def test_an_open_file_is_read_too() -> None:
    held = io.BytesIO()
    _picture("RGB").save(held, "PNG")
    assert read_picture(io.BytesIO(held.getvalue())).size == (32, 24)
    with pytest.raises(PictureError, match=r"truncated|broken|PNG"):
        read_picture(io.BytesIO(held.getvalue()[:200]))


def _sixteen_bits(folder: Path) -> Path:
    """Grey steps of 16 bits in two classes, which Pillow alone shows as white."""
    for split, label in itertools.product(("train", "validation"), (0, 1)):
        place = folder / split / str(label)
        place.mkdir(parents=True)
        for number in range(4):
            steps = np.linspace(2000 + number, 60000 if label else 30000, 32 * 32)
            Image.fromarray(steps.reshape(32, 32).astype(np.uint16)).save(place / f"{number}.png")
            last = place / f"{number}.png"
    return last


def test_all_programs_see_the_same_grey_of_16_bits(tmp_path: Path) -> None:
    file = _sixteen_bits(tmp_path)
    config = TrainConfig(data_dir=str(tmp_path))
    seen = {
        "train": open_images(config, "train", training=True).dataset[7][0],
        "validate": open_images(config, "validation").dataset[7][0],
        "visualize": read_rgb(file),
        "robustness": read_file(Sample("x", 0, file)),
    }
    wanted = np.round(np.asarray(Image.open(file)).astype(float) / 257)
    for program, picture in seen.items():
        assert np.array_equal(np.asarray(picture)[..., 0], wanted), program


def test_a_run_on_grey_of_16_bits_tells_its_classes(tmp_path: Path) -> None:
    _sixteen_bits(tmp_path / "deep")
    for file in (tmp_path / "deep").rglob("*.png"):
        eight = np.round(np.asarray(Image.open(file)).astype(float) / 257).astype(np.uint8)
        place = tmp_path / "eight" / file.relative_to(tmp_path / "deep")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(eight).save(place)
    losses = []
    for kind in ("deep", "eight"):
        log = tmp_path / f"{kind}.log"
        argv = [str(tmp_path / kind), "--model", "test_vil_ls", "--img-size", "32", "--epochs", "1"]
        argv += ["--batch-size", "8", "--workers", "0", "--output", str(tmp_path)]
        assert runs.finish([*argv, "--experiment", f"run-{kind}"], log) == 0, log.read_text()
        losses.append((tmp_path / f"run-{kind}" / "summary.csv").read_text())
    assert losses[0] == losses[1]


def test_nothing_else_opens_pictures() -> None:
    found = set()
    for room in ROOMS:
        place = ROOT / room
        assert place.exists(), place
        for file in [place] if place.is_file() else place.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node) == "Image.open":
                    found.add(file.relative_to(ROOT).as_posix())
    assert found == OPENS
