import pytest

from examples import warm_start


def test_a_short_run_compares_the_starts_and_draws(tmp_path, monkeypatch):
    trained = []

    def train(run, model, seed, epochs, *flags):
        trained.append((run.name, model, seed, epochs, flags))
        return [90.0 + seed + (5.0 if flags else 0.0)] * epochs

    monkeypatch.setattr(warm_start, "_train", train)
    curves = warm_start.compare(tmp_path, 3, 7, 2)
    assert curves == ([98.0] * 2, [93.0] * 2)
    best = str(tmp_path / "source" / warm_start.BEST)
    assert trained == [
        ("source", "test_cvt", 3, 7, ()),
        ("warm", "test_cvt_ls", 3, 2, ("--pretrained-path", best)),
        ("cold", "test_cvt_ls", 3, 2, ()),
    ]
    shown = {"from test_cvt": [[90.0, 91.0], [92.0, 93.0]]}
    assert "| from test_cvt | 91.0 ± 1.4 | 92.0 ± 1.4 |" in warm_start.table(shown)
    warm_start.draw(shown, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command_trains_and_writes_both_tables(tmp_path, capsys):
    picture = tmp_path / "curve.png"
    sizes = ["--seeds", "2", "--source-epochs", "1", "--epochs", "2"]
    warm_start.main([*sizes, "--picture", str(picture)])
    printed = capsys.readouterr().out
    for words in ("| from test_cvt |", "| from nothing |", "test_cvt_ls from it", "rank 0"):
        assert words in printed
    assert picture.exists()
