import json

import pytest
import runs
import torch

from papers.sequence import cli, compare
from papers.sequence import report as report_module
from vit_ls.config import ConfigError

SMALL = [
    *("--samples", "96", "--formula-depth", "3", "--formula-length", "3", "30", "--length", "32"),
    *("--dim", "8", "--hidden", "8", "--batch-size", "16", "--epochs", "2"),
]
BYTES = [
    *("--task", "bytes", "--length", "32", "--samples", "64", "--dim", "8", "--depth", "1"),
    *("--num-heads", "2", "--hidden", "8", "--window", "8", "--segment", "4", "--memory", "16"),
    *("--epochs", "1", "--epoch-updates", "2", "--warmup-epochs", "0"),
]


def run(folder, *argv, status=0):
    log = folder / "log"
    log.unlink(missing_ok=True)
    argv = [*argv, "--output", str(folder)]
    assert runs.finish(argv, log, script="papers.sequence.cli") == status, log.read_text()
    return log.read_text()


def report_of(folder):
    return json.loads((folder / "report.json").read_text())


def weights(folder):
    return torch.load(folder / "last.pth.tar", weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two epochs, and what it said."""
    folder = tmp_path_factory.mktemp("whole")
    return folder / "a", run(folder, "--task", "listops", *SMALL, "--experiment", "a")


def check(folder, out):
    report = report_of(folder)
    assert f"test accuracy={report['accuracy']:.3f}" in out
    assert f"floor={report['floor']:.3f}" in out
    assert [epoch for epoch, _, _ in report["epochs"]] == [0, 1]
    assert sum(count for _, _, count in report["points"]) == 12
    text = (folder / "report.md").read_text()
    assert "| levels of the formula | accuracy (%) | samples |" in text
    assert "| LS | Transformer-LS, best | 38.36 |" in text
    assert (folder / "report.png").stat().st_size > 1000


def test_listops_trains_and_reports_its_floor_and_its_depths(whole):
    check(*whole)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["cst", "full"])
def test_the_other_attentions_train_too(tmp_path, attention):
    argv = ("--task", "listops", *SMALL, "--attention", attention, "--experiment", "a")
    check(tmp_path / "a", run(tmp_path, *argv))


def test_a_run_in_two_halves_ends_as_a_whole_one(tmp_path, whole):
    common = ["--task", "listops", *SMALL, "--experiment", "half"]
    run(tmp_path, *common, "--stop-epoch", "1")
    run(tmp_path, *common, "--resume", "auto")
    ones, halves = weights(whole[0]), weights(tmp_path / "half")
    assert ones.keys() == halves.keys()
    assert all(torch.equal(ones[name], halves[name]) for name in ones)
    reports = [report_of(folder) for folder in (whole[0], tmp_path / "half")]
    assert {report.pop("date") for report in reports}  # another one after midnight
    assert reports[0] == reports[1]


def test_bytes_reads_its_memory_reports_bits_by_place_and_writes_text(tmp_path):
    argv = ("--experiment", "b", "--generate", "20", "--prompt", "def ")
    out = run(tmp_path, *BYTES, *argv)
    report = report_of(tmp_path / "b")
    assert 6 < report["bits_per_byte"] < 9
    counts = {name: count for name, _, count in report["points"]}
    assert list(counts) == ["beginning", "0-1", "2-3", "4-7", "8-15", "16-31"]
    assert counts["beginning"] == 16
    predicted = sum(counts.values())
    said = f"{predicted} of {predicted + 1} bytes; nothing stands before the first"
    assert report["counted"] == said
    assert f"test bits_per_byte={report['bits_per_byte']:.3f} ({said})" in out
    assert f"- of {said}" in (tmp_path / "b" / "report.md").read_text()
    mean = sum(value * count for _, value, count in report["points"]) / predicted
    assert mean == pytest.approx(report["bits_per_byte"])
    assert (tmp_path / "b" / "sample.txt").read_text().startswith("def ")
    assert "PSF License" in report["data"]
    assert "| Transformer-LS, 110M | enwik8 | - | 0.97 |" in (tmp_path / "b/report.md").read_text()


@pytest.mark.landing
def test_two_processes_test_the_best_weights_and_count_every_byte(tmp_path):
    log = tmp_path / "log"
    argv = (*BYTES, "--output", str(tmp_path), "--experiment", "two")
    processes = runs.start_two("papers.sequence.cli", argv, log)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0], log.read_text()
    report = report_of(tmp_path / "two")
    predicted = sum(count for _, _, count in report["points"])
    assert (
        report["counted"]
        == f"{predicted} of {predicted + 1} bytes; nothing stands before the first"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "listops", "--hflip", "0.5"], "sequence tasks have no use for --hflip."),
        (["--task", "chess"], "--task must be one of"),
        (["--task", "listops", "--attention", "window"], "--attention window is for --task bytes"),
        (["--task", "digits", "--num-heads", "3"], "--dim must be even and divisible"),
        (["--task", "digits", "--attention", "cst", "--pooling", "cls"], "--pooling cls"),
        (["--task", "digits", "--generate", "9"], "are for --task bytes, got --task digits"),
        (["--task", "digits", "--memory", "16"], "are for --task bytes, got --task digits"),
        (["--task", "bytes", "--window", "0"], "--window must be positive for --task bytes"),
        (["--task", "bytes", "--memory", "12"], "--memory must be whole segments of 8, got 12"),
        (["--task", "bytes", "--attention", "cst", "--memory", "16"], "--memory is for long-short"),
        (["--task", "bytes", "--attention", "cst", "--generate", "253"], "fit into the --length"),
        (
            ["--task", "listops", "--formula-length", "4", "52"],
            "--length must be at least 51, the longest formula of --formula-length, or its label "
            "would be of more than is read, got 50.",
        ),
        (["--task", "bytes", "--attn-drop", "0.1"], "--attn-drop is for long-short and full"),
        (["--task", "digits", "--attention", "cst", "--attn-drop", "0.1"], "--attention cst."),
        (["--task", "listops", "--resume", "auto"], "--resume auto needs --experiment NAME"),
    ],
)
def test_contradicting_settings_are_refused_before_anything_is_opened(capsys, argv, message):
    with pytest.raises(SystemExit) as end:
        cli._parse(argv)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "text"], "--data-dir must hold the IMDb reviews"),
        (["--task", "digits", "--data-dir", "x"], "--task digits brings its own data"),
        (["--task", "pathfinder", "--data-dir", "x"], "must hold curv_baseline, of --difficulty"),
        (
            ["--task", "bytes", "--length", "9000000"],
            "must be less than is taken",
        ),
    ],
)
def test_data_that_is_not_there_is_one_line(argv, message):
    with pytest.raises(ConfigError, match=message):
        cli.open_task(cli._parse(argv))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "digits", "--length", "63"], "--length must be at least 64 for this data"),
        pytest.param(
            ["--task", "digits", "--batch-size", "2000"],
            "--batch-size must be at most the 1433",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--task", "digits", "--initial-checkpoint", "no.pth"],
            "--initial-checkpoint no.pth: No such file",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_unusable_settings_end_with_status_2_and_one_line(tmp_path, argv, message):
    out = run(tmp_path, *argv, status=2)
    assert message in out
    assert "Traceback" not in out


@pytest.mark.slow
def test_files_without_samples_end_with_status_2_and_one_line(tmp_path):
    for part in ("train", "val", "test"):
        (tmp_path / f"basic_{part}.tsv").write_text("Source\tTarget\n")
    out = run(tmp_path, "--task", "listops", "--data-dir", str(tmp_path), status=2)
    assert f"Each split of {tmp_path} must have samples, got none." in out
    assert "Traceback" not in out


def test_a_run_is_not_continued_on_another_task(tmp_path, whole):
    last = str(whole[0] / "last.pth.tar")
    out = run(tmp_path, "--task", "digits", "--dim", "8", "--resume", last, status=2)
    assert "--model 'listops_ls' -> 'digits_ls' cannot change in a run" in out


@pytest.mark.slow
def test_a_run_is_not_continued_with_another_rank(tmp_path, whole):
    last = str(whole[0] / "last.pth.tar")
    argv = ("--task", "listops", *SMALL, "--rank", "1", "--resume", last)
    assert "--rank 4 -> 1 would make it another run" in run(tmp_path, *argv, status=2)


@pytest.mark.slow
def test_a_run_starts_from_the_weights_of_another(tmp_path):
    run(tmp_path, *BYTES, "--experiment", "first")
    first = tmp_path / "first" / "model_best.pth.tar"
    argv = ("--lr", "1e-30", "--weight-decay", "0", "--initial-checkpoint", str(first))
    run(tmp_path, *BYTES, *argv, "--experiment", "second")
    ones, others = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.equal(ones[name], others[name]) for name in ones)


def written(folder, **changes):
    report = {
        "task": "listops",
        "data": "formulas",
        "settings": {"dim": 8},
        "attention": "full",
        "parameters": 10,
        "machine": "a CPU",
        "torch": "2.0",
        "date": "2026-01-01",
        "seed": 0,
        "accuracy": 50.0,
        "epochs": [[0, 2.0, 1.0], [1, 1.0, 0.5]],
        "by": "levels",
        "points": [["2", 60.0, 3], ["3", 40.0, 3]],
    }
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report | changes))
    return str(folder)


def test_runs_are_set_side_by_side_with_the_mean_of_their_seeds(tmp_path, capsys):
    a = written(tmp_path / "a")
    b = written(tmp_path / "b", seed=1, accuracy=52.0)
    c = written(tmp_path / "c", attention="window 4 alone", accuracy=40.0)
    rows = tmp_path / "rows.csv"
    compare.main([a, b, c, "--csv", str(rows), "--plot", str(tmp_path / "plot.png")])
    out = capsys.readouterr().out
    assert "| full | 10 | 0 1 | 51.000 (50.000, 52.000) |" in out
    assert "| window 4 alone | 10 | 0 | 40.000 |" in out
    assert rows.read_text().splitlines() == [
        "# machine,a CPU",
        "# torch,2.0",
        "task,data,attention,parameters,seed,date,measure,value",
        "listops,formulas,full,10,0,2026-01-01,accuracy,50",
        "listops,formulas,full,10,0,2026-01-01,accuracy at 2,60",
        "listops,formulas,full,10,0,2026-01-01,accuracy at 3,40",
        "listops,formulas,full,10,1,2026-01-01,accuracy,52",
        "listops,formulas,full,10,1,2026-01-01,accuracy at 2,60",
        "listops,formulas,full,10,1,2026-01-01,accuracy at 3,40",
        "listops,formulas,window 4 alone,10,0,2026-01-01,accuracy,40",
        "listops,formulas,window 4 alone,10,0,2026-01-01,accuracy at 2,60",
        "listops,formulas,window 4 alone,10,0,2026-01-01,accuracy at 3,40",
    ]
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_written_rows_are_drawn_without_their_runs(tmp_path, monkeypatch):
    rows, picture = tmp_path / "rows.csv", tmp_path / "plot.png"
    compare.main([written(tmp_path / "a"), written(tmp_path / "b", seed=1), "--csv", str(rows)])
    drawn = []
    monkeypatch.setattr(compare, "plot", lambda *args: drawn.append(args))
    compare.main(["--csv", str(rows), "--task", "listops", "--plot", str(picture)])
    ((path, (report,), title),) = drawn
    assert (path, title) == (picture, None)
    assert report["attention"] == "full"
    assert report["accuracy"] == 50.0
    assert [point[:2] for point in report["points"]] == [("2", 60.0), ("3", 40.0)]
    monkeypatch.undo()
    compare.main(["--csv", str(rows), "--task", "listops", "--plot", str(picture)])
    assert picture.stat().st_size > 1000


def test_rows_that_cannot_be_drawn_are_one_line(tmp_path, capsys):
    rows, picture = tmp_path / "rows.csv", str(tmp_path / "plot.png")
    compare.main([written(tmp_path / "a"), "--csv", str(rows)])
    (tmp_path / "other.csv").write_text("a,b\n")
    for argv, words in (
        ([], "without folders --csv, --task and --plot must be given."),
        (["--csv", str(rows), "--task", "bytes", "--plot", picture], "of the task bytes, got none"),
        (["--csv", str(tmp_path / "other.csv"), "--task", "x", "--plot", picture], "--csv wrote"),
        (["--csv", str(tmp_path / "no.csv"), "--task", "x", "--plot", picture], "no.csv"),
    ):
        with pytest.raises(SystemExit) as ended:
            compare.main(argv)
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reports", "title"),
    [
        (
            [{"attention": "a", "accuracy": 50.0}, {"attention": "b", "accuracy": 60.0}],
            "t: best with b, accuracy (%) 60",
        ),
        (
            [{"attention": "a", "bits_per_byte": 1.9}, {"attention": "b", "bits_per_byte": 2.1}],
            "t: best with a, bits per byte 1.9",
        ),
    ],
)
def test_a_plot_says_who_is_best(reports, title, tmp_path, monkeypatch):
    titles = []
    real = report_module.picture
    monkeypatch.setattr(
        report_module,
        "picture",
        lambda path, words, **kwargs: (titles.append(words), real(path, words, **kwargs))[1],
    )
    common = {"task": "t", "by": "levels", "points": [("2", 1.0, 3), ("3", 2.0, 3)]}
    report_module.plot(tmp_path / "a.png", [report | common for report in reports])
    assert titles == [title]


def test_a_file_of_rows_keeps_other_tasks_and_forgets_older_runs_of_its_own(tmp_path):
    rows = str(tmp_path / "rows.csv")
    compare.main([written(tmp_path / "a"), "--csv", rows])
    compare.main([written(tmp_path / "b", task="digits", points=[]), "--csv", rows])
    compare.main([written(tmp_path / "c", seed=5, points=[]), "--csv", rows])
    assert [
        line.split(",")[:5] for line in (tmp_path / "rows.csv").read_text().splitlines()[3:]
    ] == [
        ["digits", "formulas", "full", "10", "0"],
        ["listops", "formulas", "full", "10", "5"],
    ]


def test_rows_of_two_machines_do_not_come_into_one_file(tmp_path, capsys):
    rows, a = tmp_path / "rows.csv", written(tmp_path / "a")
    b = written(tmp_path / "b", machine="another")
    for folders in ([a, b], [b]):
        if len(folders) == 1:
            compare.main([a, "--csv", str(rows)])
        with pytest.raises(SystemExit):
            compare.main([*folders, "--csv", str(rows)])
    err = capsys.readouterr().err
    assert "--csv takes runs of one machine and one torch, got" in err
    assert "rows.csv must be a file of this command and of another, 2.0." in err
    assert "a CPU" in rows.read_text()


@pytest.mark.parametrize("name", ["task", "data", "settings"])
def test_runs_of_different_kinds_are_not_set_side_by_side(tmp_path, capsys, name):
    other = written(tmp_path / "b", **{name: {"dim": 9} if name == "settings" else "other"})
    with pytest.raises(SystemExit):
        compare.main([written(tmp_path / "a"), other])
    assert f"must have the same {name} as" in capsys.readouterr().err


def test_a_folder_without_a_report_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path)])
    assert "must be the folder of a finished run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        compare.main([written(tmp_path / "a"), "--csv", str(tmp_path / "no" / "rows.csv")])
    assert "rows.csv must be in a folder that is there." in capsys.readouterr().err
