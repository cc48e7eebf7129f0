import csv

import pytest
import timm
import torch
from matplotlib.figure import Figure

from papers.analysis import cosine, length, main, norms, read_images, shares
from papers.analysis_report import distinct, finding, plot
from vit_ls import job


@pytest.mark.parametrize(
    "name", ["cvt_ls_13", pytest.param("vil_ls_medium", marks=pytest.mark.slow)]
)
def test_dual_ln_makes_projected_keys_and_values_as_large_as_those_of_the_window(name):
    for dual_ln in (True, False):
        torch.manual_seed(0)
        model = timm.create_model(name, dual_ln=dual_ln).eval()
        rows = norms(model, read_images(None, model, count=1))
        layers = 13 if name == "cvt_ls_13" else 5
        assert len(rows) == 2 * layers
        for row in rows:
            if dual_ln:
                assert row["ratio"] == pytest.approx(1, abs=0.02), row
            else:
                assert row["ratio"] < 1, row


def test_the_cosine_is_that_of_all_pairs():
    torch.manual_seed(0)
    model, x = timm.create_model("test_vil_ls").eval(), torch.randn(1, 3, 20, 20)
    rows = cosine(model, x)
    assert len(rows) == 4  # and a fifth block of one token
    grid = model.forward_intermediates(x, intermediates_only=True)[0][0].flatten(1).T
    pairs = torch.nn.functional.cosine_similarity(grid[:, None], grid[None], dim=-1)
    expected = pairs[~torch.eye(len(grid), dtype=torch.bool)].mean().item()
    assert rows[0]["cosine"] == pytest.approx(expected, abs=1e-5)


def test_a_block_of_one_token_has_no_pairs_and_no_row():
    model = timm.create_model("test_vil_ls").eval()
    rows = cosine(model, torch.randn(1, 3, 32, 32))
    assert [row["block"] for row in rows][-1] == "stages.2.blocks.1"


def test_a_curve_stands_at_its_own_layers():
    rows = [{"layer": n, "share": 0.5, "part": p} for n, p in (("a", "w"), ("b", "g"), ("c", "g"))]
    axes = Figure().subplots()
    plot(axes, rows, x="layer", y="share", lines=("part",))
    assert [list(line.get_xdata()) for line in axes.lines] == [[0], [1, 2]]


def test_a_panel_says_what_was_found():
    ratios = [("m", 1.0), ("m", 1.004), ("m, dual_ln=False", 0.47), ("m, dual_ln=False", 0.73)]
    norms_of = [{"model": model, "ratio": ratio} for model, ratio in ratios]
    assert finding("norms", norms_of) == (
        "Projected norms are 1.00 of the window's with DualLN, 0.47 to 0.73 without"
    )
    kept = [("m", 32, 1.0), ("m", 64, 38.2), ("m, attention=full", 64, 98.7)]
    memory_of = [{"model": m, "side": side, "MiB": value} for m, side, value in kept]
    assert finding("memory", memory_of) == (
        "At 64 pixels training keeps 38 MiB (m), 99 MiB (full attention)"
    )
    shares_of = [{"part": "window", "share": 0.8}, {"part": "projected", "share": 0.2}]
    assert finding("shares", shares_of) == (
        "Projected tokens get 20% of attention at first, 20% at last"
    )
    assert finding("shares", shares_of[:1]) == "No layer has projected tokens"
    scores = {row["attention"]: row["scores"] for row in length() if row["length"] == 16384}
    times = scores["full"] / scores["slices of 32"]
    assert f"slices of 32 need {times:.0f} times" in finding("length", length())


def test_lines_are_named_by_what_differs():
    assert distinct(["m, keys", "m, values", "m, dual_ln=False, keys"]) == [
        *("keys", "values", "no DualLN, keys")
    ]
    assert distinct(["m", "m, attention=full"]) == ["m", "full attention"]
    assert distinct(["m"]) == ["m"]


def test_a_checkpoint_and_digits_are_what_is_analysed(tmp_path):
    model = timm.create_model("test_vil_ls").eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    argv = ["--models", "test_vil_ls", "--checkpoint", str(tmp_path / "weights.pth"), "--digits"]
    main([*argv, "--only", "shares", "cosine", "--out", str(tmp_path)])
    with (tmp_path / "shares.csv").open(newline="") as file:
        found = [float(row["share"]) for row in csv.DictReader(file)]
    expected = [row["share"] for row in shares(model, read_images(None, model, digits=True))]
    assert found == pytest.approx(expected, abs=1e-6)
    assert (tmp_path / "analysis.png").exists()


def test_slices_have_fewer_scores_than_full_attention_where_they_are_many():
    scores = {(row["attention"], row["length"]): row["scores"] for row in length()}
    assert scores["slices of 16", 4096] == 4096 * 16 + 256**2
    assert scores["slices of 16", 4096] < scores["full", 4096] / 100


def test_the_command_writes_a_table_and_a_plot_of_each_analysis(tmp_path, capsys):
    main(["--only", "norms", "cosine", "shares", "length", "--out", str(tmp_path)])
    assert capsys.readouterr().out.count("rows") == 4
    for name in ("norms", "cosine", "shares", "length"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "shares.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    totals = {}
    for row in rows:
        totals[row["layer"]] = totals.get(row["layer"], 0) + float(row["share"])
    assert all(total == pytest.approx(1, abs=1e-5) for total in totals.values())


def test_a_folder_without_images_is_one_line_and_status_2(tmp_path, capsys):
    argv = ["--only", "shares", "--images", str(tmp_path), "--out", str(tmp_path / "out")]
    assert job.command_line("papers.analysis", lambda: main(argv)) == 2
    assert "--images must hold JPEG or PNG files" in capsys.readouterr().err
