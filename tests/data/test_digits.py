import numpy as np

from vit_ls.data.digits import Digits


def test_a_fifth_of_each_digit_is_held_out() -> None:
    train, held_out = Digits(held_out=False), Digits(held_out=True)
    assert len(train) + len(held_out) == 1797
    for label in range(10):
        ours, theirs = train.targets.count(label), held_out.targets.count(label)
        assert abs(theirs / (ours + theirs) - 0.2) < 0.01


def test_splits_are_disjoint_and_always_the_same() -> None:
    train, held_out = Digits(held_out=False), Digits(held_out=True)
    pixels = [
        {np.asarray(split[i][0]).tobytes() for i in range(len(split))}
        for split in (train, held_out)
    ]
    assert not pixels[0] & pixels[1]
    again = Digits(held_out=True)
    assert again.targets == held_out.targets
    assert all(again[i][0].tobytes() == held_out[i][0].tobytes() for i in range(len(held_out)))


def test_images_have_the_size_and_channels_asked_for() -> None:
    for mode, channels in (("RGB", 3), ("L", 1)):
        image, label = Digits(held_out=True, mode=mode)[0]
        assert image.size == (32, 32)
        assert len(image.getbands()) == channels
        assert label in range(10)
        assert image.getextrema() != (0, 0)
