"""The snippets of the README's section on clients, as a reader would run them."""

import pytest
from readme import blocks

SNIPPETS = blocks("Dense prediction and other clients")


@pytest.mark.filterwarnings("ignore")  # of the clients
@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_runs(code):
    for client in ("segmentation_models_pytorch", "transformers"):
        if client in code:
            pytest.importorskip(client, reason="needs the extra clients")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_each_client_has_its_snippet():
    text = "\n".join(SNIPPETS)
    clients = ["FasterRCNN", "smp.Unet", "TimmBackbone", "TimmWrapper", "features_only=True"]
    assert [client for client in clients if client not in text] == []
