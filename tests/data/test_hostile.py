"""Files that are no images, and settings that fit no image, end in one line or are counted."""

import os
import shutil
import socket
import struct
import zlib
from pathlib import Path

import pytest
import runs

FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--batch-size", "8", "--epochs", "1"),
    *("--experiment", "run"),
]


def _train(images: str, output: Path, *argv: str) -> tuple[int, str]:
    log = output / "log"
    status = runs.finish([images, *FLAGS, "--output", str(output), *argv], log)
    return status, log.read_text()


@pytest.fixture
def images(digit_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(digit_folder, tmp_path / "images")
    return tmp_path / "images"


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def _bomb(path: Path) -> None:
    """A PNG of some bytes that says that it has 3.6 billion pixels."""
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def _device(path: Path) -> None:
    """A link to a file without an end; another one for each split, which must not share files."""
    path.symlink_to("/dev/zero" if "train" in path.parts else "/dev/urandom")


HOSTILE = {
    "bomb": (_bomb, "DecompressionBombError"),
    "fifo": (os.mkfifo, "not a regular file"),
    "socket": (_socket, "not a regular file"),
    "device": (_device, "not a regular file"),
    "nowhere": (lambda path: path.symlink_to(path.parent / "nowhere"), "No such file"),
    "text": (lambda path: path.write_text("no image"), "cannot identify image file"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_an_unreadable_image(images: Path, tmp_path: Path, kind: str) -> None:
    make, reason = HOSTILE[kind]
    dataset = "torch/folder" if kind in ("fifo", "bomb") else ""
    for split in ("train", "validation"):
        make(images / split / "3" / "hostile.png")
    status, log = _train(str(images), tmp_path, "--workers", "0", "--dataset", dataset)
    assert status == 0, log
    for split, what in (("train", "replaced by the next"), ("validation", "counted as wrong")):
        line = next(line for line in log.splitlines() if what in line)
        assert str(images / split / "3" / "hostile.png") in line
        assert reason in line
    assert "eval_unreadable=1" in log
    log_of_validation = tmp_path / "validation.log"
    best = str(tmp_path / "run" / "model_best.pth.tar")
    argv = ["--checkpoint", best, "--workers", "1"]
    assert runs.finish(argv, log_of_validation, script="validate") == 0
    assert "images=38 " in log_of_validation.read_text()


def test_more_hostile_files_than_allowed_end_with_one_line(images: Path, tmp_path: Path) -> None:
    _bomb(images / "train" / "3" / "hostile.png")
    status, log = _train(str(images), tmp_path, "--workers", "1", "--max-unreadable", "0")
    assert status == 1
    assert "--max-unreadable 0 is exceeded: " in log.splitlines()[-1]
    assert log.splitlines()[-1].count("Error") == 1
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--in-chans", "2"], "take the 3 channels of RGB images, got 2"),
        (["--input-img-mode", "L"], "take the 1 channels of L images, got 3"),
        (["--in-chans", "1", "--input-img-mode", "RGB"], "the 3 channels of RGB images, got 1"),
        (["--in-chans", "1", "--input-size", "3", "16", "16"], "--in-chans must be the first of"),
        (
            ["--in-chans", "1", "--mean", "0.1", "0.2", "0.3"],
            "--mean and --std must have one value",
        ),
        (["--crop-pct", "100"], "--crop-pct must be at most 1, got 100.0"),
        (["--cutmix-minmax", "0.9", "0.1"], "--cutmix-minmax must be lower, upper; got [0.9, 0.1]"),
        (
            ["--scale", "5", "6"],
            "--scale is a share of the image's area, at most 1; got [5.0, 6.0]",
        ),
        (["--aug-repeats", "1000"], "--aug-repeats must be at most the images of a batch"),
    ],
)
def test_settings_that_fit_no_image_are_refused(
    digit_folder: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    status, log = _train(str(digit_folder), tmp_path, "--workers", "0", *flags)
    assert status == 2, log
    assert message in log
    assert log.count("\n") == 1, log


def test_evaluation_refuses_them_too(digit_folder: Path, tmp_path: Path) -> None:
    argv = [str(digit_folder), "--model", "test_vil_ls", "--random-weights", "--workers", "0"]
    for flags, message in (
        (["--in-chans", "2"], "take the 3 channels of RGB images, got 2"),
        (["--input-img-mode", "L"], "take the 1 channels of L images, got 3"),
        (["--crop-pct", "100"], "--crop-pct must be at most 1, got 100.0"),
    ):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        assert runs.finish([*argv, *flags], log, script="validate") == 2
        assert message in log.read_text()
        assert log.read_text().count("\n") == 1


@pytest.mark.parametrize("flags", [["--in-chans", "1"], ["--in-chans", "1", "--mean", "0.5"]])
def test_grey_images_are_trained_on(digit_folder: Path, tmp_path: Path, flags: list[str]) -> None:
    argv = [*flags, "--input-img-mode", "L", "--workers", "0"]
    status, log = _train(str(digit_folder), tmp_path, *argv)
    assert status == 0, log
