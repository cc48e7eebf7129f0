"""The store of an agent of torchrun's."""

from collections.abc import Iterator

import pytest
from torch.distributed import TCPStore


@pytest.fixture
def agent() -> Iterator[dict[str, str]]:
    """The store that an agent of torchrun's keeps for all starts of a job, as they are told."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    del store
