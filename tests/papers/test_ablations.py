import json

import pytest
import torch

from papers import ablations
from papers.ablations import Result, Run, build, compare, main, read_results, runs, table
from vit_ls import job
from vit_ls.config import ConfigError


def test_each_seed_has_the_default_and_one_change_at_a_time():
    wanted = list(runs(seeds=2, epochs=6))
    assert len(wanted) == len(set(wanted)) == 2 * 17
    assert [run.seed for run in wanted] == [0] * 17 + [1] * 17
    for run in wanted:
        default, _ = ablations.ABLATIONS[run.attention]
        for name, value in json.loads(run.change).items():
            assert value != getattr(default, name) or name == "mixer_hidden"


@pytest.mark.parametrize("run", list(runs(seeds=1, epochs=1)), ids=lambda run: run.change)
def test_a_change_reaches_the_model(run):
    x = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    default = build(run._replace(change="{}")).eval()
    changed = build(run).eval()
    assert torch.equal(default(x), changed(x)) == (run.change == "{}")


def test_a_difference_is_held_against_the_larger_deviation_and_its_error():
    found = compare([5.0, 7.0], [1.0, 2.0])
    assert found[:3] == pytest.approx((6, 2**0.5, 4.5))
    assert found.t == pytest.approx(4.5 / (2 / 2 + 0.5 / 2) ** 0.5)
    assert found.beyond_spread
    assert not compare([1.0, 7.0], [1.0, 2.0]).beyond_spread


def test_a_file_is_continued_and_its_table_compares_with_the_default(tmp_path, capsys, monkeypatch):
    trained = []

    def train(run, *_):
        trained.append(run)
        return run

    def evaluate(run, *_):
        return Result(50.0 + run.seed + 20 * ("rank" in run.change), 1.0)

    monkeypatch.setattr(ablations, "read_digits", lambda held_out: (held_out, held_out))
    monkeypatch.setattr(ablations, "train", train)
    monkeypatch.setattr(ablations, "evaluate", evaluate)
    path = tmp_path / "rows.csv"
    main(["--csv", str(path), "--seeds", "1", "--epochs", "3"])
    main(["--csv", str(path), "--seeds", "2", "--epochs", "3"])
    assert trained == list(runs(2, 3))
    assert read_results(path)[Run("long-short", '{"rank": 0}', 1, 3)] == Result(71, 1)
    capsys.readouterr()
    main(["--csv", str(path), "--report"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 17
    assert lines[4].startswith("| long-short | rank=0 | 2 | 70.50 ± 0.71 | +20.00 | +28.3 | yes |")
    assert lines[2].startswith("| long-short | default | 2 | 50.50 ± 0.71 |  |  |  |")
    assert table({}).count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--seeds", "0"], "--seeds must be positive, got 0."),
        (["--report"], "--report needs a file of rows, got none.csv."),
        (["--csv", __file__, "--report"], "--csv must be a file of papers.ablations, got @."),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(flags, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["--csv", "none.csv", *flags]
    assert job.command_line("ablations", lambda: main(argv)) == 2
    assert capsys.readouterr().err == f"ablations: {complaint}\n".replace("@", __file__)
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize("content", [b"\x89PNG\xff", b"a,b\n\x00,1\n", b"a,b\n1,2\n"])
def test_a_file_of_something_else_is_not_continued(content, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--csv must be a file of papers.ablations"):
        read_results(file)


@pytest.mark.slow
def test_a_model_learns_the_digits():
    images, labels = ablations.read_digits(held_out=False)
    run = Run("long-short, convolutional", "{}", 0, 2)
    result = ablations.evaluate(ablations.train(run, images, labels), images, labels)
    assert result.top1 > 30  # a guess is 10
