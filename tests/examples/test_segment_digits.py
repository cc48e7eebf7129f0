import pytest
import torch

from examples.segment_digits import CLASSES, HEIGHT, WIDTH, Canvases, Segmenter, evaluate, main


def test_canvases_are_the_same_for_the_same_seed_and_label_the_ink():
    images, labels = Canvases(held_out=True, seed=3).draw(2)
    again, labels_again = Canvases(held_out=True, seed=3).draw(2)
    assert torch.equal(images, again)
    assert torch.equal(labels, labels_again)
    assert images.shape == (2, 1, HEIGHT, WIDTH)
    assert set(labels.unique().tolist()) <= set(range(CLASSES))
    assert images[:, 0][labels > 0].min() > images[:, 0][labels == 0].max()


def test_training_and_held_out_canvases_show_other_digits():
    training, held_out = (Canvases(held_out=h, seed=0).digits for h in (False, True))
    shown = {training[i][0].tobytes() for i in range(len(training))}
    assert all(held_out[i][0].tobytes() not in shown for i in range(len(held_out)))


def test_logits_have_the_size_of_the_image():
    assert Segmenter("test_cvt_ls")(torch.randn(2, 1, 45, 70)).shape == (2, CLASSES, 45, 70)


def test_a_perfect_model_is_reported_as_perfect():
    canvases = Canvases(held_out=True, seed=1)

    class Oracle(torch.nn.Module):
        def forward(self, images):
            drawn, labels = canvases.draw(len(images))
            assert torch.equal(drawn, images)
            return torch.nn.functional.one_hot(labels, CLASSES).permute(0, 3, 1, 2)

    assert evaluate(Oracle(), 20) == pytest.approx((1.0, 1.0))


def test_a_short_run_reports_and_draws(tmp_path, capsys):
    picture = tmp_path / "digits.png"
    main(["--steps", "2", "--canvases", "10", "--picture", str(picture)])
    assert "held-out digits: mean IoU" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
