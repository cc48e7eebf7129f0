"""`python -m robustness.corrupt` takes nothing over that it did not make."""

from pathlib import Path

import pytest
from colour_trees import paint

from robustness import corrupt


def command(folder: Path, *more: str) -> list[str]:
    place = ["--src", str(folder / "src"), "--dst", str(folder / "dst")]
    return [*place, "--corruptions", "contrast", "--severities", "1", "2", *more]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder in which two images are corrupted."""
    for name in "xy":
        paint(tmp_path / f"src/a/{name}.png", 40 if name == "x" else 900, 64)
    assert corrupt.main(command(tmp_path)) == 0
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    before = contents(folder / "dst")
    assert corrupt.main(command(folder, *more)) == 2
    assert contents(folder / "dst") == before
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    return error


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_was_ended_goes_on_to_the_same_files(made: Path, workers: str) -> None:
    whole = contents(made / "dst")
    (made / "dst/contrast/2/a/y.png.JPEG").unlink()
    assert corrupt.main(command(made, "--workers", workers)) == 0
    assert contents(made / "dst") == whole


def test_a_file_of_the_right_name_that_was_not_made_is_refused(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = made / "dst/contrast/1/a/x.png.JPEG"
    paint(file, 7, 224)
    error = refused(made, capsys)
    assert "1 files that this command did not make of --src: contrast/1/a/x.png.JPEG;" in error


def test_files_are_refused_where_no_manifest_says_who_made_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paint(tmp_path / "src/a/x.png", 40, 64)
    paint(tmp_path / "dst/contrast/1/a/x.png.JPEG", 40, 224)
    assert "contrast/1/a/x.png.JPEG" in refused(tmp_path, capsys)
    assert not (tmp_path / "dst/GENERATED.json").exists()


def test_other_files_are_refused_by_name(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paint(made / "dst/contrast/1/b/z.JPEG", 40, 224)
    (made / "dst/notes.txt").write_text("mine")
    (made / "dst/.hidden").write_text("a machine's")
    error = refused(made, capsys)
    assert "2 files" in error
    assert "contrast/1/b/z.JPEG, notes.txt" in error


def test_copies_of_another_image_of_the_same_name_are_not_kept(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paint(made / "src/a/x.png", 41, 64)
    assert "2 files" in refused(made, capsys)


def test_copies_that_another_code_made_are_not_kept(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corrupt.Generator, "fingerprint", lambda *_: "of another version")
    assert "4 files" in refused(made, capsys)


def test_more_corruptions_are_added_to_those_that_are_there(made: Path) -> None:
    before = contents(made / "dst")
    more = ["--src", str(made / "src"), "--dst", str(made / "dst"), "--corruptions", "brightness"]
    assert corrupt.main([*more, "--severities", "3"]) == 0
    after = contents(made / "dst")
    assert after.keys() - before.keys() == {
        "brightness/3/a/x.png.JPEG",
        "brightness/3/a/y.png.JPEG",
    }
    assert before.items() <= after.items()


def test_names_that_are_not_utf8_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paint(tmp_path / "src/a/x.png", 40, 64)
    paint(tmp_path / "src/a/b\udcff.png", 40, 64)
    assert corrupt.main(command(tmp_path)) == 2
    error = capsys.readouterr().err.strip()
    said = error.removeprefix("python -m robustness.corrupt: ")
    assert said == r"--src has names that are not UTF-8, rename them: a/b\xff.png."
