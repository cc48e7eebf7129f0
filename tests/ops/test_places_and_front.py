"""Keys in front of windows have no places, where the keys of the windows have some."""

import pytest
import torch
from tolerances import TOLERANCE

from vit_ls.ops import Positions, Windows, window_attention
from vit_ls.ops.impl import IMPLEMENTATIONS, WHY_NOT


@pytest.mark.parametrize("impl", [name for name in IMPLEMENTATIONS if name not in WHY_NOT])
@pytest.mark.parametrize("halo", [0, 1])
def test_places_of_keys_are_not_of_the_keys_in_front(impl, halo):
    q, k, v = torch.randn(3, 2, 5, 7, 8, dtype=torch.float64)
    front = torch.randn(2, 2, 3, 8, dtype=torch.float64)
    side = 2 + 2 * halo
    positions = Positions(
        query=torch.randn(2, 2, 8, dtype=torch.float64),
        key=torch.randn(side, side, 8, dtype=torch.float64),
    )
    arguments = q, torch.stack((k, v)), front, positions, Windows((2, 2), (halo, halo))
    expected = window_attention(*arguments, "dense", num_heads=2)
    found = window_attention(*arguments, impl, num_heads=2)
    torch.testing.assert_close(found, expected, **TOLERANCE[torch.float64])
