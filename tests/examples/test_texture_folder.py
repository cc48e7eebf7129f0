import itertools

import numpy as np
import pytest
from PIL import Image

from examples import texture_folder
from examples.texture_folder import SIDE, TEXTURES, main
from vit_ls.errors import MissingPackageError


def test_without_scikit_image_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(texture_folder, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="pip install scikit-image"):
        main(["--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_the_folder_has_its_classes_in_both_splits_and_no_tile_twice(tmp_path, capsys):
    pytest.importorskip("skimage", reason="needs the extra examples")
    main(["--out", str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path}: 3 classes, 144 in train, 48 in validation\n"
    tiles = {}
    for split, texture in itertools.product(("train", "validation"), TEXTURES):
        files = list((tmp_path / split / texture).glob("*.png"))
        assert len(files) == {"train": 48, "validation": 16}[split]
        for file in files:
            with Image.open(file) as image:
                assert image.size == (SIDE, SIDE)
                pixels = np.asarray(image)
            assert pixels.std() > 1, "a tile shows something"
            tiles[pixels.tobytes()] = file
    assert len(tiles) == 192
