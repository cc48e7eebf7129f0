"""What two processes do together in tests/job/test_contact.py; the flag names the case."""

import datetime
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from timm.task import ClassificationTask
from torch import Tensor, nn

import train
from vit_ls import evaluate, job
from vit_ls.config import TrainConfig
from vit_ls.train.distribute import distribute, eval_model, share_norms
from vit_ls.train.update import Updater


def main(argv: Sequence[str]) -> None:
    """Run a case in this process; it returns what is printed."""
    name, *flags = argv
    if name == "training":
        _training(flags)
        return
    ranks = job.join("cpu", 30.0)
    config = TrainConfig(batch_size=4, no_ddp_bb="no-ddp-bb" in flags)
    with job.supervised(config, ranks):
        said = globals()[name](ranks, config)
    if ranks.primary:
        print(said, flush=True)  # noqa: T201


def _training(flags: Sequence[str]) -> None:
    """A run of train.py, and the size of what its control group adds up, in numbers."""
    sizes, all_reduce = [], dist.all_reduce

    def counted(values: Tensor, *args: Any, group: Any = None, **kwargs: Any) -> Any:
        if group is not None:
            sizes.append(values.numel())
        return all_reduce(values, *args, group=group, **kwargs)

    dist.all_reduce = counted
    train.main(flags)
    print(f"largest control message: {max(sizes)}", flush=True)  # noqa: T201


def _killed(ranks: job.Ranks) -> None:
    """The second process dies here; the first one goes on when the other is gone."""
    if not ranks.primary:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)


class _Normed(nn.Module):
    """A layer with batch norm; `spare` has no part in the result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.spare = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.norm(self.layer(x))
        return result


def _task(ranks: job.Ranks, config: TrainConfig, *, spare: bool = False) -> Any:
    torch.manual_seed(0)
    model = _Normed()
    model.spare.requires_grad_(spare)
    task = ClassificationTask(model, device=ranks.device, verbose=False)
    task.setup_ema(decay=0.5)
    distribute(task, config, ranks)
    return task.train()


def _batch(ranks: job.Ranks) -> tuple[Tensor, Tensor]:
    """Other images in each process."""
    generator = torch.Generator().manual_seed(ranks.rank)
    return torch.randn(4, 3, generator=generator) + ranks.rank, torch.arange(4) % 2


def joined(ranks: job.Ranks, _config: TrainConfig) -> str:
    return f"joined: {ranks.gather(ranks.rank)}"


def lost_before_a_meeting(ranks: job.Ranks, _config: TrainConfig) -> None:
    _killed(ranks)
    ranks.meet()


def late_for_a_meeting(ranks: job.Ranks, _config: TrainConfig) -> None:
    # Joining may take its time on a busy machine; the meeting may not.
    control = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=2))
    if not ranks.primary:
        time.sleep(60)
    replace(ranks, control=control).meet()


def lost_in_the_backward_pass(ranks: job.Ranks, config: TrainConfig) -> None:
    task = _task(ranks, config)
    loss = task(*_batch(ranks))["loss"]
    _killed(ranks)
    loss.backward()


def lost_before_buffers_are_broadcast(ranks: job.Ranks, config: TrainConfig) -> None:
    task = _task(ranks, config)
    task(*_batch(ranks))["loss"].backward()
    _killed(ranks)
    task(*_batch(ranks))


def a_model_that_ddp_refuses(ranks: job.Ranks, config: TrainConfig) -> None:
    task = _task(ranks, config, spare=True)
    for _ in range(2):
        task(*_batch(ranks))["loss"].backward()


def ending_a_group_that_waits(ranks: job.Ranks, _config: TrainConfig) -> None:
    """As NCCL's, which waits for what a lost process never sends (simulated: there is no GPU)."""
    dist.destroy_process_group = lambda: time.sleep(600)
    _killed(ranks)
    ranks.meet()


def shared_norms(ranks: job.Ranks, config: TrainConfig) -> str:
    task = _task(ranks, config)
    task(*_batch(ranks))["loss"].backward()
    task.update_ema(step=10)
    models = [task.get_trainable_module(ema=ema) for ema in (False, True)]
    means = [dict(model.module.named_buffers())["norm.running_mean"] for model in models]
    before = [torch.stack(ranks.gather(mean.clone())) for mean in means]
    share_norms(task, config, ranks)
    after = [torch.stack(ranks.gather(mean)) for mean in means]
    for was, now in zip(before, after, strict=True):
        assert not torch.equal(was[0], was[1])
        assert torch.equal(now[0], now[1])
        assert torch.allclose(now[0], was.mean(0))
    return "shared"


def broadcast_buffers(ranks: job.Ranks, config: TrainConfig) -> str:
    """Whether the second forward pass started from the first process's statistics everywhere."""
    task = _task(ranks, config)
    norm = task.get_trainable_module().module.norm
    with torch.no_grad():
        norm.running_mean.fill_(float(ranks.rank))
    norm.momentum = 0.0  # the pass itself changes nothing
    task(*_batch(ranks))["loss"].backward()
    found = ranks.gather(norm.running_mean[0].item())
    return f"running means {found}"


def evaluation_of_unequal_parts(ranks: job.Ranks, config: TrainConfig) -> str:
    """Three batches here and one there: what evaluates must not wait for the others' batches."""
    model = eval_model(_task(ranks, config), ema=False)
    assert model is not None
    loader = [_batch(ranks)] * (3 if ranks.primary else 1)
    result = evaluate.evaluate(model, loader, ranks, job.autocast(False, "bfloat16", ranks.device))
    assert result.per_image is None
    return f"{result.images} images, {result.unreadable} unreadable"


def one_gradient(ranks: job.Ranks, config: TrainConfig) -> str:
    """The gradient, and so its norm, is that of the global batch in both processes."""
    torch.manual_seed(0)
    task = ClassificationTask(nn.Linear(3, 2), device=ranks.device, verbose=False)
    whole = ClassificationTask(nn.Linear(3, 2), device=ranks.device, verbose=False)
    whole.load_state_dict(task.state_dict())
    distribute(task, config, ranks)
    settings = TrainConfig(grad_accum_steps=2, log_grad_norm=True)
    batches = [_batch(SimpleNamespace(rank=rank)) for rank in range(4)]  # type: ignore[arg-type]
    norms = []
    for one, mine, place in (
        (task, batches[ranks.rank :: 2], ranks),
        (whole, batches, job.Ranks(ranks.device)),
    ):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        outcome = Updater(one, optimizer, settings, place)(iter(mine), len(mine))
        assert outcome.applied
        assert outcome.norm is not None
        norms.append(outcome.norm)
    assert torch.allclose(norms[0], norms[1]), norms
    weights = [task.get_trainable_module().module.weight, whole.trainable_module.weight]
    assert torch.allclose(*weights)
    assert len(set(ranks.gather(norms[0].item()))) == 1
    return "one gradient"
