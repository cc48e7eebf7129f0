"""python -m vit_ls.predict: what it prints for a photo, from Python too, and what it refuses."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import ImageNetInfo

import vit_ls
from vit_ls import job
from vit_ls.config import ConfigError, TrainConfig, asdict
from vit_ls.data.pictures import PictureError
from vit_ls.predict import main, predict

NAMES = {"cat": 0, "dog": 1, "n02084071": 2, "n01440764": 3, "owl": 4, "yak": 5}
BIASES = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, -1.0])
"""Logits of the checkpoint, whatever the photo shows: its classifier has no weights but these."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's checkpoint, grey at 32 x 32, whose classes have names."""
    settings = TrainConfig(model="test_vil_ls", num_classes=6, img_size=32, in_chans=1)
    model = timm.create_model("test_vil_ls", num_classes=6, img_size=32, in_chans=1)
    state = model.state_dict()
    state["head.fc.weight"].zero_()
    state["head.fc.bias"].copy_(BIASES)
    path = tmp_path_factory.mktemp("run") / "model_best.pth.tar"
    torch.save({"epoch": 0, "args": asdict(settings), "state_dict": state, "classes": NAMES}, path)
    return path


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.landing
def test_the_command_prints_the_best_classes_with_a_bar_as_long_as_each_is_likely(
    checkpoint: Path, photo: Path
) -> None:
    command = [sys.executable, "-m", "vit_ls.predict", photo, "--checkpoint", checkpoint]
    done = subprocess.run(
        [*map(str, command), "--top", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head == f"{photo} ({checkpoint}, raw weights)"
    found = [re.fullmatch(r" *([\d.]+)%  (#*) *  (\S.*)", row) for row in rows]
    likely = BIASES.softmax(0)[[4, 3, 2]]
    wnid = ImageNetInfo().label_name_to_description("n01440764")
    assert [row[3] for row in found if row] == ["owl", wnid, "n02084071"]
    assert [float(row[1]) for row in found if row] == pytest.approx(
        (100 * likely).tolist(), abs=0.1
    )
    assert [len(row[2]) for row in found if row] == (40 * likely).round().int().tolist()


def test_the_command_ends_with_one_line_and_status_2_where_no_weights_are_named(
    photo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(photo), "--model", "test_vil_ls"]
    assert job.command_line("vit_ls.predict", lambda: main(argv)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vit_ls.predict: name the weights by one of --checkpoint FILE and")
    assert "--random-weights" in line


def test_python_gives_what_the_model_says_of_the_image_as_validation_prepares_it(
    photo: Path,
) -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_vil_ls", num_classes=1000).eval()
    transform = timm.data.create_transform(
        **timm.data.resolve_model_data_config(model, use_test_size=True)
    )
    with Image.open(photo) as image, torch.no_grad():
        expected = model(transform(image.convert("RGB"))[None])[0].softmax(0)
    guesses = predict(model, photo, top=7)
    names = ImageNetInfo().label_descriptions()
    best = expected.topk(7)
    assert [guess.name for guess in guesses] == [names[index] for index in best.indices]
    assert [guess.probability for guess in guesses] == pytest.approx(best.values.tolist(), rel=1e-5)


def test_a_run_without_names_numbers_its_classes(
    checkpoint: Path, photo: Path, tmp_path: Path
) -> None:
    content = torch.load(checkpoint, weights_only=True)
    del content["classes"]
    torch.save(content, tmp_path / "nameless.pth.tar")
    model = vit_ls.load(tmp_path / "nameless.pth.tar")
    assert [guess.name for guess in predict(model, photo, top=2)] == ["class 4", "class 3"]


def test_a_photo_is_turned_only_when_asked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_vil_ls", num_classes=7).eval()
    pixels = np.zeros((48, 48, 3), dtype=np.uint8)
    pixels[:24] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera that was held upright
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path, exif=exif)
    turned = Image.fromarray(np.rot90(pixels, -1).copy())
    assert predict(model, path) == predict(model, Image.fromarray(pixels))
    assert predict(model, path, turn=True) == predict(model, turned)
    assert predict(model, path) != predict(model, path, turn=True)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--model", "test_vil_ls", "--pretrained", "--random-weights"], "name the weights by one"),
        (["--random-weights"], "--model must be given"),
        (["--model", "test_vil_lt", "--random-weights"], "timm knows, got 'test_vil_lt'"),
        (["--model", "test_vil_ls", "--random-weights", "--top", "0"], "--top .* got 0"),
        (["--model", "test_vil_ls", "--random-weights", "--weights", "ema"], "needs --checkpoint"),
        (["--model", "cvt_ls_13", "--pretrained"], "No pretrained weights exist for cvt_ls_13"),
        (["--checkpoint", "FILE", "--model", "test_cvt_ls"], "is of a run of test_vil_ls; --model"),
        (["--checkpoint", "FILE", "--weights", "ema"], "holds no averaged weights"),
        (["--checkpoint", "FILE", "--model-kwargs", "rank=1"], "it has its own"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    flags: list[str], complaint: str, checkpoint: Path, photo: Path
) -> None:
    told = [str(checkpoint) if flag == "FILE" else flag for flag in flags]
    with pytest.raises(ConfigError, match=complaint):
        main([str(photo), *told])


def test_weights_of_another_number_of_classes_are_refused(photo: Path, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(timm.create_model("test_vil_ls", num_classes=7).state_dict(), path)
    with pytest.raises(ConfigError, match="--num-classes must be 7"):
        main([str(photo), "--model", "test_vil_ls", "--checkpoint", str(path)])
    kwargs = ["--model-kwargs", "num_classes=7"]
    main([str(photo), "--model", "test_vil_ls", "--checkpoint", str(path), *kwargs])


def test_a_file_that_is_no_picture_is_named(tmp_path: Path, checkpoint: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no picture")
    with pytest.raises(ConfigError, match=r"notes\.txt must be an image that Pillow reads"):
        main([str(path), "--checkpoint", str(checkpoint)])
    with pytest.raises(PictureError):
        predict(vit_ls.load(checkpoint), path)


def test_a_model_that_can_give_no_classes_is_refused(photo: Path) -> None:
    model = timm.create_model("test_vil_ls")
    with pytest.raises(ValueError, match="must be in eval mode"):
        predict(model, photo)
    features = timm.create_model("test_vil_ls", num_classes=0).eval()
    with pytest.raises(ValueError, match="one logit for each class"):
        predict(features, photo)
    with torch.no_grad():
        model.head.fc.bias[0] = torch.nan
    with pytest.raises(ValueError, match="finite logits"):
        predict(model.eval(), photo)
