"""The memory of an update, counted on fake tensors, is that of a real one."""

from dataclasses import replace

import pytest
import timm
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from vit_ls.config import TrainConfig
from vit_ls.estimate.memory import Memory, memory_of
from vit_ls.job import Ranks
from vit_ls.train.recipe import make_optimizer, make_task
from vit_ls.train.update import Updater

CPU = torch.device("cpu")
CONFIG = TrainConfig(opt="adamw", lr=1e-4, num_classes=10, device="cpu", amp=False, batch_size=8)


def _model(name: str, side: int, config: TrainConfig) -> nn.Module:
    model = timm.create_model(name, num_classes=10, img_size=side)
    model.set_grad_checkpointing(config.grad_checkpointing)
    return model


def _counted(name: str, side: int, config: TrainConfig, *, on_gpu: bool = False) -> Memory:
    with torch.device("meta"):
        model = _model(name, side, config)
    return memory_of(model, None, (3, side, side), config, on_gpu=on_gpu)


def _allocated(name: str, side: int, config: TrainConfig) -> int:
    """Bytes that a second update allocates beyond those before it, by PyTorch's own account."""
    model = _model(name, side, config)
    task = make_task(model, None, config, CPU)
    updater = Updater(task, make_optimizer(model, config, 1), config, Ranks(CPU))
    labels = torch.arange(config.batch_size) % 10

    def update() -> None:
        # as many batches as the count has at hand: the one that is trained on, and the next
        batches = [(torch.randn(config.batch_size, 3, side, side), labels) for _ in range(2)]
        assert updater(iter(batches[:1]), 1).applied

    update()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        update()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in record.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    now = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        now += change
        peak = max(peak, now)
    return peak


@pytest.mark.landing
@pytest.mark.parametrize(
    ("name", "side", "changes"),
    [
        pytest.param("test_vil_ls", 64, {}, id="long-short"),
        pytest.param("test_cvt_ls", 64, {"amp": True}, id="convolutions in bfloat16"),
        pytest.param("cvt_ls_13", 64, {}, id="a paper's model"),
        pytest.param("cvt_ls_13", 64, {"grad_checkpointing": True}, id="recomputed"),
    ],
)
def test_the_count_is_within_ten_percent_of_what_an_update_allocates(
    name: str, side: int, changes: dict[str, bool]
) -> None:
    config = replace(CONFIG, **changes)
    counted = _counted(name, side, config)
    gradients = sum(p.nbytes for p in _model(name, side, config).parameters())
    rise = counted.activations + gradients  # which are gone before an update
    assert rise == pytest.approx(_allocated(name, side, config), rel=0.1)


@pytest.mark.landing
def test_state_is_what_weights_gradients_optimiser_average_and_exchange_take() -> None:
    weights = sum(p.nbytes for p in _model("test_vil_ls", 32, CONFIG).parameters())
    plain = _counted("test_vil_ls", 32, CONFIG).state
    # AdamW keeps two numbers for each weight; its count of steps is small, and so are tables
    assert plain == pytest.approx(4 * weights, rel=0.02)
    averaged = _counted("test_vil_ls", 32, replace(CONFIG, model_ema=True)).state
    assert averaged - plain == pytest.approx(weights, rel=0.02)
    elsewhere = replace(CONFIG, model_ema=True, model_ema_force_cpu=True)
    assert _counted("test_vil_ls", 32, elsewhere).state == plain


@pytest.mark.landing
def test_memory_grows_with_the_batch_as_said() -> None:
    counted = _counted("test_vil_ls", 32, CONFIG)
    larger = _counted("test_vil_ls", 32, replace(CONFIG, batch_size=32))
    # the peak of a larger batch may lie at another place of the update: steeper, never flatter
    grown = larger.total - counted.total
    assert 24 * counted.per_image <= grown == pytest.approx(24 * counted.per_image, rel=0.1)


def test_the_largest_batch_is_the_last_that_fits() -> None:
    memory = Memory(state=1000, activations=100, per_image=10.0, batch_size=8)
    assert memory.largest_batch(1100, even=False) == 8
    assert memory.largest_batch(1139, even=False) == 11
    assert memory.largest_batch(1139, even=True) == 10
    assert memory.largest_batch(900, even=False) == 0


class _Attention(nn.Module):
    """Attention without weights of 256 tokens of 8 numbers, between two projections and a norm."""

    num_classes, in_chans = 10, 3

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 10)
        self.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
        self.to("meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x.flatten(2).mT)).unsqueeze(1)
        x = nn.functional.scaled_dot_product_attention(x, x, x)
        return self.last(x.mean((1, 2)))


def test_a_gpu_keeps_the_input_of_a_norm_in_float32_and_no_scores() -> None:
    mixed = replace(CONFIG, amp=True, batch_size=64)
    counted = memory_of(_Attention(), None, (3, 16, 16), mixed)
    plain = memory_of(_Attention(), None, (3, 16, 16), mixed, on_gpu=False)
    tokens, scores = 256 * 8, 256 * 256 * 2
    assert counted.per_image < scores
    # its input as float32 is 4 bytes a number, beside the 2 of what it was made from
    assert counted.per_image - plain.per_image >= 2 * tokens


def test_a_model_that_asks_for_a_value_has_no_count() -> None:
    class Asking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.mean((2, 3))
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(Exception, match="_local_scalar_dense"):
        memory_of(Asking(3, 10).to("meta"), None, (3, 8, 8), CONFIG)


def test_a_teacher_takes_its_weights_and_no_gradients() -> None:
    config = replace(CONFIG, kd_model_name="any", batch_size=64)
    alone, taught = (
        memory_of(_Attention(), teacher, (3, 16, 16), config) for teacher in (None, _Attention())
    )
    weights = sum(p.nbytes for p in _Attention().parameters())
    assert 0 < taught.state - alone.state <= weights + 64
