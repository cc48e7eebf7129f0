"""Training data is never held-out data: a split is there, alone, or the run does not start."""

import os
import shutil
import tarfile
from pathlib import Path

import pytest
import runs

from vit_ls.config import ConfigError
from vit_ls.data.splits import checked_kind, links_in, split_root

TRAIN = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--batch-size", "8"),
    *("--epochs", "1", "--experiment", "run"),
]
VALIDATE = ["--model", "test_vil_ls", "--img-size", "16", "--workers", "0"]


@pytest.fixture
def images(digit_folder: Path, tmp_path: Path) -> Path:
    root = tmp_path / "images"
    shutil.copytree(digit_folder, root)
    return root


def _train(tmp_path: Path, *argv: str) -> tuple[int, str]:
    log = tmp_path / "log"
    status = runs.finish([*TRAIN, "--output", str(tmp_path / "output"), *argv], log)
    return status, log.read_text()


def _validate(tmp_path: Path, *argv: str) -> tuple[int, str]:
    log = tmp_path / "log"
    weights = [] if "--checkpoint" in argv else ["--random-weights"]
    status = runs.finish([*VALIDATE, *weights, *argv], log, script="validate")
    return status, log.read_text()


def _refused(outcome: tuple[int, str], message: str) -> None:
    status, log = outcome
    assert status == 2, log
    assert message in log.splitlines()[-1], log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("missing", "flags", "message"),
    [
        ("validation", [], "has no split 'validation'; it has the folders 'train'."),
        ("train", [], "has no split 'train'; it has the folders 'validation'."),
        ("", ["--val-split", "vall"], "no split 'vall'; it has the folders 'train', 'validation'."),
        ("", ["--train-split", "trian"], "has no split 'trian'"),
        ("", ["--train-split", "train[:50]"], "a part of a split needs hfds/ or tfds/"),
        ("", ["--dataset", "torch/folder", "--val-split", "vall"], "has no split 'vall'"),
        ("", ["--dataset", "hfds"], "got 'hfds'"),
        ("", ["--dataset", "digts"], "got 'digts'; did you mean 'digits'?"),
        ("", ["--dataset", "hfd/x"], "got 'hfd/x'; did you mean 'hfds/x'?"),
        ("", ["--train-num-samples", "5"], "the number of images is that of the data here, got 5"),
        ("", ["--val-num-samples", "5"], "the number of images is that of the data here, got 5"),
        ("", ["--epoch-repeats", "2"], "--epoch-repeats is for streamed data sets"),
    ],
)
def test_a_split_that_is_not_there_ends_training(
    images: Path, tmp_path: Path, missing: str, flags: list[str], message: str
) -> None:
    if missing:
        shutil.rmtree(images / missing)
    _refused(_train(tmp_path, str(images), *flags), message)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--train-split", "tran"], "digits has no split 'tran'; it has 'train' and 'validation'."),
        (["--val-split", "vall"], "digits has no split 'vall'"),
        (["--val-split", "training"], "the splits must not share images: 'train' and 'training'"),
        (["--val-split", "train"], "the splits must not share images"),
        (["--train-split", ""], "digits needs the name of a split"),
    ],
)
def test_digits_have_two_splits(tmp_path: Path, flags: list[str], message: str) -> None:
    _refused(_train(tmp_path, "--dataset", "digits", *flags), message)


def test_flat_class_folders_are_no_split(images: Path, tmp_path: Path) -> None:
    flat = str(images / "train")
    message = "/train has no split 'validation'; it has the folders '0', '1', "
    _refused(_train(tmp_path, flat), message)
    _refused(_validate(tmp_path, flat), message)


def test_a_misspelt_split_ends_an_evaluation(images: Path, tmp_path: Path) -> None:
    _refused(_validate(tmp_path, str(images), "--split", "vall"), "has no split 'vall'")
    _refused(_validate(tmp_path, "--dataset", "digits", "--split", "vall"), "no split 'vall'")


def test_the_folder_of_a_split_or_all_of_a_folder_can_be_evaluated(
    images: Path, tmp_path: Path
) -> None:
    (images / "train").rename(images / "other")
    for argv in (["validation"], ["validation", "--split", "val"], ["other", "--split", ""]):
        status, log = _validate(tmp_path, str(images / argv[0]), *argv[1:])
        assert status == 0, log
        assert f"images={96 if argv[0] == 'other' else 37} " in log.splitlines()[-1]


def test_no_held_out_split_is_training_without_evaluation(images: Path, tmp_path: Path) -> None:
    shutil.rmtree(images / "validation")
    argv = [str(images), "--val-split", ""]
    status, log = _train(tmp_path, *argv)
    assert status == 0, log
    folder = tmp_path / "output" / "run"
    last = folder / "last.pth.tar"
    assert log.splitlines()[-1] == f"not evaluated epoch=0 checkpoint={last}"
    assert "eval" not in (folder / "summary.csv").read_text()
    assert not (folder / "model_best.pth.tar").exists()
    status, log = _train(tmp_path, *argv, "--epochs", "2", "--resume", "auto")
    assert status == 0, log
    assert "not evaluated epoch=1" in log
    _refused(_train(tmp_path, *argv, "--sched", "plateau"), "--sched plateau needs an evaluation")
    # The evaluation of such a run looks for a split of the usual name: all images were trained on.
    _refused(_validate(tmp_path, "--checkpoint", str(last)), "has no split 'validation'")


def test_a_split_of_the_run_that_is_gone_ends_the_evaluation(images: Path, tmp_path: Path) -> None:
    (images / "validation").rename(images / "held")
    status, log = _train(tmp_path, str(images), "--val-split", "held")
    assert status == 0, log
    (images / "held").rename(images / "validation")
    best = str(tmp_path / "output" / "run" / "model_best.pth.tar")
    _refused(_validate(tmp_path, "--checkpoint", best), "has no split 'held'")


@pytest.mark.parametrize("dataset", ["", "torch/folder"])
@pytest.mark.parametrize("how", ["same", "folder", "file", "all"])
def test_an_image_in_both_splits_ends_training(
    images: Path, tmp_path: Path, how: str, dataset: str
) -> None:
    flags = ["--dataset", dataset]
    inside = images / "validation" / "3"
    if how == "same":
        flags += ["--val-split", "train"]
    elif how == "folder":
        shutil.rmtree(inside)
        inside.symlink_to(images / "train" / "3")
    elif how == "file":
        (inside / "link.png").symlink_to(next((images / "train" / "3").iterdir()))
    else:
        flags += ["--train-split", "" if dataset == "" else "."]
    outcome = _train(tmp_path, str(images), *flags)
    if (how, dataset) == ("all", "torch/folder"):
        _refused(outcome, "the splits must have the same classes")  # here: the folders at the top
    else:
        _refused(outcome, "the splits must not share images")


def test_the_model_is_not_built_where_splits_share_images(images: Path, tmp_path: Path) -> None:
    flags = ["--val-split", "train", "--model-kwargs", "no_such_argument=1"]
    _refused(_train(tmp_path, str(images), *flags), "the splits must not share images")


def test_links_to_other_images_are_followed(images: Path, tmp_path: Path) -> None:
    (images / "train" / "3").rename(tmp_path / "threes")
    (images / "train" / "3").symlink_to(tmp_path / "threes")
    status, log = _train(tmp_path, str(images))
    assert status == 0, log


@pytest.mark.parametrize("target", ["validation", "validation/3", "."])
def test_a_loop_of_links_ends_with_one_line(images: Path, tmp_path: Path, target: str) -> None:
    (images / "validation" / "3" / "loop").symlink_to((images / target).resolve())
    _refused(_train(tmp_path, str(images)), "/loop is a link to")
    _refused(_validate(tmp_path, str(images)), "a folder that it lies in")


def test_folders_that_link_to_one_another_end_with_one_line(images: Path, tmp_path: Path) -> None:
    for here, there in ("34", "43"):
        (images / "train" / here / "loop").symlink_to(images / "train" / there)
    _refused(_train(tmp_path, str(images)), "/loop is a link to")


def test_a_file_that_links_to_itself_is_an_unreadable_image(images: Path, tmp_path: Path) -> None:
    loop = images / "validation" / "3" / "loop.png"
    loop.symlink_to(loop)
    status, log = _train(tmp_path, str(images))
    assert status == 0, log
    assert f"counted as wrong: {loop}" in log


@pytest.mark.parametrize("in_tars", [False, True])
def test_a_class_map_says_what_it_leaves_out(images: Path, tmp_path: Path, in_tars: bool) -> None:
    names = tmp_path / "names.txt"
    names.write_text("\n".join(str(label) for label in reversed(range(8))))
    left_out = sum(len(list((images / "train" / label).iterdir())) for label in "89")
    assert left_out > 5
    if in_tars:
        for split in ("train", "validation"):
            with tarfile.open(images / f"{split}.tar", "w") as archive:
                archive.add(images / split, arcname=".")
            shutil.rmtree(images / split)
    status, log = _train(tmp_path, str(images), "--class-map", str(names))
    assert status == 0, log
    assert f"leaves out {left_out} of 96 images: it has no '8', '9'." in log
    names.write_text("other\n")
    argv = [str(images), "--class-map", str(names), "--experiment", "second"]
    _refused(_train(tmp_path, *argv), "has none of the classes '0', '1', '2', '3', '4' and 5 more")


def test_a_tar_is_one_split(images: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(images / "train", arcname=".")
    path = str(tmp_path / "all.tar")
    _refused(_train(tmp_path, path), "all.tar is one split, 'all' or '', not 'train'.")
    status, log = _train(tmp_path, path, "--train-split", "", "--val-split", "")
    assert status == 0, log
    status, log = _validate(tmp_path, path, "--split", "")
    assert status == 0, log
    assert "images=96 " in log


def test_two_data_sets_of_torchvision_are_not_confused(tmp_path: Path) -> None:
    for flags, message in (
        (["--train-split", "trian"], "torch/cifar10 has no split 'trian'"),
        (["--val-split", "tset"], "torch/cifar10 has no split 'tset'"),
        (["--class-map", __file__], "--class-map has no effect on torch/cifar10"),
        ([], "cannot be opened"),  # it is not there
    ):
        _refused(_train(tmp_path, str(tmp_path), "--dataset", "torch/cifar10", *flags), message)
    argv = [str(tmp_path), "--dataset", "torch/cifr10"]
    _refused(_train(tmp_path, *argv), "did you mean 'torch/cifar10'?")


def test_the_names_of_timm_are_found_and_a_folder_of_that_name_is_it_itself(
    tmp_path: Path,
) -> None:
    (tmp_path / "val" / "a").mkdir(parents=True)
    root = str(tmp_path)
    for name in ("validation", "val", "eval"):
        assert split_root(root, name) == str(tmp_path / "val")
    assert split_root(str(tmp_path / "val"), "validation") == str(tmp_path / "val")
    for place, name in ((root, "test"), (str(tmp_path / "val"), "train"), (root, "x" * 300)):
        with pytest.raises(ConfigError, match="has no split"):
            split_root(place, name)
    # A folder that has the name of a split, but holds another split, is not that split.
    (tmp_path / "val" / "train").mkdir()
    with pytest.raises(ConfigError, match="has no split 'validation'"):
        split_root(str(tmp_path / "val"), "validation")


def test_kinds_of_data_sets_are_those_of_timm() -> None:
    for name in ("", "digits", "torch/cifar10", "TORCH/Folder", "hfds/a/B", "tfds/x", "wds/x"):
        assert checked_kind(name) == name.partition("/")[0].lower()
    for name in ("folder", "imagenet", "torch/", "hfds/", "zip/x"):
        with pytest.raises(ConfigError, match="--dataset must be"):
            checked_kind(name)


def test_only_links_to_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").touch()
    (tmp_path / "a" / "1.png").symlink_to("0.png")
    os.mkfifo(tmp_path / "a" / "2.png")
    assert links_in(str(tmp_path)) == {str(tmp_path / "a" / "1.png")}
