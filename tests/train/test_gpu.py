"""What a GPU would be asked to do, without one.

Where a device has to be there, torch's answers about it are replaced, or fake tensors stand for its
own: they carry shapes and a device and no values, so whatever would wait for a value raises.
"""

import datetime
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from timm import create_model
from timm.task import ClassificationTask
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import train
from vit_ls import job, run
from vit_ls.config import ConfigError, TrainConfig
from vit_ls.count import count_flops
from vit_ls.data import loaders
from vit_ls.evaluate.counting import Evaluator
from vit_ls.job import ranks, rng
from vit_ls.run.state import Progress
from vit_ls.train.meters import Sums
from vit_ls.train.recipe import make_optimizer
from vit_ls.train.update import Updater
from vit_ls.train.utilisation import PEAKS, utilisation

GPU = torch.device("cuda", 0)


class _Machine:
    """Simulates a machine with GPUs, and a job that has started there."""

    def __init__(self, patch: pytest.MonkeyPatch, visible: int) -> None:
        self.current: int | None = None
        self.groups: list[tuple[str, datetime.timedelta]] = []
        self.uuids = ["GPU-a", "GPU-b"]
        accelerator = SimpleNamespace(type="cuda")
        patch.setattr(torch.accelerator, "current_accelerator", lambda **_: accelerator)
        patch.setattr(torch.accelerator, "device_count", lambda: visible)
        patch.setattr(torch.cuda, "set_device", self._set_device)
        patch.setattr(ranks, "_identity", lambda _: "")
        patch.setattr(ranks, "own_store", lambda *_: "the store of this start")
        patch.setattr(dist, "init_process_group", self._group)
        patch.setattr(dist, "new_group", self._group)
        patch.setattr(ranks.Ranks, "gather", lambda *_: self.uuids)
        self._patch = patch

    def process(self, local_rank: int, world_size: int = 2) -> None:
        for name, value in (
            ("RANK", local_rank),
            ("LOCAL_RANK", local_rank),
            ("WORLD_SIZE", world_size),
        ):
            self._patch.setenv(name, str(value))

    def _set_device(self, index: Any) -> None:
        self.current = index if isinstance(index, int) else index.index

    def _group(self, backend: str, timeout: datetime.timedelta, **met: Any) -> None:
        self.groups.append((backend, timeout))
        if met:
            assert met["store"] == "the store of this start"


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"),
    [(8, 3, 3), (1, 3, 0), (1, 0, 0), (2, 1, 1)],
)
def test_a_process_takes_the_gpu_that_it_sees(
    monkeypatch: pytest.MonkeyPatch, visible: int, local_rank: int, index: int
) -> None:
    machine = _Machine(monkeypatch, visible)
    machine.process(local_rank)
    joined = job.join("auto", 60)
    assert joined.device == torch.device("cuda", index)
    assert machine.current == index
    (backend, patience), (control, limit) = machine.groups
    assert (backend, control) == ("cpu:gloo,cuda:nccl", "gloo")
    assert limit == datetime.timedelta(seconds=60)
    assert patience > limit, "NCCL's watchdog must not be first"


def test_fewer_gpus_than_processes_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, 2)
    machine.process(3)
    with pytest.raises(ConfigError, match="a GPU of its own: process 3 of this machine sees 2"):
        job.join("cuda", 60)
    machine = _Machine(monkeypatch, 1)
    machine.uuids = ["GPU-a", "GPU-a"]
    machine.process(1)
    with pytest.raises(ConfigError, match="a GPU of its own, got 1 for 2"):
        job.join("cuda", 60)


def test_a_numbered_device_is_set_and_is_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, 2)
    assert job.join("cuda:1", 60).device == torch.device("cuda", 1)
    assert machine.current == 1
    with pytest.raises(ConfigError, match="--device must be auto, cpu or cuda here, got 'cuda:2'"):
        job.join("cuda:2", 60)
    machine.process(0)
    with pytest.raises(ConfigError, match="--device cuda:1 names one device, but 2 processes"):
        job.join("cuda:1", 60)


def test_the_random_state_is_that_of_the_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = torch.arange(16, dtype=torch.uint8)
    put: list[torch.Tensor] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: mine)
    monkeypatch.setattr(torch.cuda, "set_rng_state", put.append)
    rng.set_random_state(rng.random_state())
    assert put == [mine]


class _Reads(TorchDispatchMode):
    """Counts what a device is waited for: copies to the CPU and single values."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        copied = func is torch.ops.aten._to_copy.default and result.device.type == "cpu"
        if func is torch.ops.aten._local_scalar_dense.default or (
            copied and args[0].device.type != "cpu"
        ):
            self.count += 1
        return result


@pytest.fixture
def _fake() -> Iterator[None]:
    with FakeTensorMode():
        yield


def _slicing_asks_the_driver() -> bool:
    with FakeTensorMode():
        try:
            torch.empty(2, device=GPU)[:1]
        except RuntimeError:
            return True
    return False


@pytest.mark.skipif(
    _slicing_asks_the_driver(), reason="this torch cannot slice a fake tensor without a driver"
)
@pytest.mark.usefixtures("_fake")
def test_evaluation_reads_its_counts_once() -> None:
    evaluator = Evaluator(GPU, limit=10)
    with _Reads() as reads:
        for _ in range(3):
            logits = torch.randn(4, 7, device=GPU, dtype=torch.bfloat16)
            evaluator.update(logits, torch.zeros(4, dtype=torch.long, device=GPU))
        assert reads.count == 0
        evaluator.totals(job.Ranks(GPU))
        assert reads.count == 1


@pytest.mark.parametrize("mode", ["norm", "value", "agc"])
def test_updates_do_not_wait_for_the_gpu(mode: str) -> None:
    # Backward passes need a device: "meta" has no values either.
    meta = torch.device("meta")
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5, device=meta))
    task = ClassificationTask(model, device=meta, verbose=False)
    config = TrainConfig(clip_grad=1.0, clip_mode=mode, log_grad_norm=True)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    updater = Updater(task, optimizer, config, job.Ranks(meta))
    sums = Sums(Progress(), meta)
    labels = torch.zeros(4, dtype=torch.long, device=meta)
    for _ in range(2):
        batches = iter([(torch.randn(4, 3, 2, 2, device=meta), labels)] * 2)
        outcome = updater(batches, 2)
        assert outcome.applied
        assert outcome.norm is not None
        sums.add(outcome)
    with pytest.raises(RuntimeError, match="meta tensor"):
        sums.read()  # as everything that reads a value would


@pytest.mark.parametrize(
    ("settings", "device", "fused"),
    [
        ({"opt": "adamw"}, GPU, True),
        ({"opt": "adamw"}, torch.device("cpu"), None),
        ({"opt": "adamw", "opt_kwargs": {"foreach": True}}, GPU, None),
        ({"opt": "adamw", "opt_kwargs": {"fused": False}}, GPU, False),
        ({"opt": "lookahead_adamw"}, GPU, None),
        ({"opt": "sgd"}, GPU, None),
    ],
)
def test_adamw_is_one_kernel_on_a_gpu_where_nothing_else_is_asked(
    settings: dict[str, Any], device: torch.device, fused: bool | None
) -> None:
    with FakeTensorMode():
        model = nn.Linear(3, 2, device=device)
        optimizer = make_optimizer(model, TrainConfig(**settings), 1)
    assert optimizer.param_groups[0].get("fused") is fused


@pytest.mark.parametrize(
    ("asked", "device", "pinned"),
    [(None, GPU, True), (True, GPU, True), (False, GPU, False), (None, torch.device("cpu"), False)],
)
def test_batches_are_in_pinned_memory_where_a_gpu_reads_them(
    asked: bool | None, device: torch.device, pinned: bool
) -> None:
    assert loaders._pins(TrainConfig(pin_mem=asked), job.Ranks(device)) is pinned


def _half(monkeypatch: pytest.MonkeyPatch, *, fused: bool = False) -> tuple[Updater, nn.Module]:
    """Float16 with its scaler, on the CPU, without the check that a CPU makes at each update."""
    model = nn.Linear(3, 2)
    task = ClassificationTask(model, verbose=False)
    config = TrainConfig(amp=True, amp_dtype="float16", clip_grad=1.0)
    here = job.Ranks(torch.device("cpu"))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    if fused:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    updater = Updater(task, optimizer, config, here)
    monkeypatch.setattr(updater, "_checks", False)
    return updater, model


def test_float16_reads_its_scale_once_per_update(monkeypatch: pytest.MonkeyPatch) -> None:
    updater, _ = _half(monkeypatch)
    assert updater.scaler is not None
    scale, read = updater.scaler.get_scale, []
    monkeypatch.setattr(updater.scaler, "get_scale", lambda: read.append(1) or scale())
    for number in range(4):
        updater(iter([(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))]), 1)
        assert len(read) == number + 2  # and once at the start


@pytest.mark.parametrize("fused", [False, True])
def test_float16_knows_which_updates_were_skipped(
    monkeypatch: pytest.MonkeyPatch, fused: bool
) -> None:
    updater, model = _half(monkeypatch, fused=fused)
    applied, progress = [], Progress()
    sums = Sums(progress, torch.device("cpu"))
    for value in (1.0, 1e38, 1.0):
        before = [weight.clone() for weight in model.parameters()]
        outcome = updater(iter([(torch.full((4, 3), value), torch.zeros(4, dtype=torch.long))]), 1)
        sums.add(outcome)
        changed = [not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True)]
        assert any(changed) == outcome.applied
        applied.append(outcome.applied)
    sums.read()
    assert applied == [True, False, True]
    assert progress.norms == 2, "an infinite norm counts in no mean"


def test_a_gpu_without_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB"
        )

    monkeypatch.setattr(Updater, "_loss", full)
    flags = ["--output", str(tmp_path), "--batch-size", "48", "--epochs", "1"]
    status = job.command_line("train.py", lambda: train.main(flags))
    said = capsys.readouterr().err.splitlines()[-1]
    assert status == 1
    assert said == (
        "train.py: cpu is out of memory with --batch-size 48; what helps: a smaller --batch-size, "
        "with more --grad-accum-steps for the same update; --grad-checkpointing; --amp (bfloat16). "
        "(CUDA out of memory. Tried to allocate 2.00 GiB)"
    )


def test_utilisation_is_of_the_models_own_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    model = create_model("test_vil_ls", num_classes=10).eval()
    names = iter(["NVIDIA H200", "NVIDIA H200", "NVIDIA H200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: next(names))
    used = utilisation(model, (32, 32), TrainConfig(), GPU)
    assert used is not None
    assert used(1000.0) == pytest.approx(
        1000 * 6 * count_flops(model, (32, 32)) / (PEAKS["NVIDIA H200"] * 1e12)
    )
    assert utilisation(model, (32, 32), TrainConfig(amp=False), GPU) is None
    assert utilisation(model, (32, 32), TrainConfig(freeze="backbone"), GPU) is None
    assert utilisation(model, (32, 32), TrainConfig(), GPU) is None
    assert utilisation(model, (32, 32), TrainConfig(), torch.device("cpu")) is None


def test_the_newer_gpus_have_a_peak() -> None:
    names = " ".join(PEAKS)
    for gpu in ("B200", "GH200", "H200", "L40S", "RTX 5090", "MI300X"):
        assert gpu in names
    assert all(100 < peak < 2500 for peak in PEAKS.values()), "dense, in teraflops"


def test_synchronised_norms_keep_timms_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    model = create_model("test_efficientnet", num_classes=3).eval()
    image = torch.randn(1, 3, 32, 32)
    wanted = model(image)
    # The model goes to "meta", which stands for a GPU; its weights come back for the comparison.
    state = model.state_dict()
    synced = run.prepared(model, TrainConfig(sync_bn=True), torch.device("meta"))
    assert any(isinstance(module, nn.SyncBatchNorm) for module in synced.modules())
    synced = synced.to_empty(device="cpu").eval()
    synced.load_state_dict(state)
    assert torch.allclose(synced(image), wanted, atol=1e-6)
    with pytest.raises(ConfigError, match="--sync-bn needs a GPU for each process"):
        run.prepared(model, TrainConfig(sync_bn=True), torch.device("cpu"))


@pytest.mark.parametrize(
    ("mode", "refused"),
    [
        ("reduce-overhead", True),
        ("max-autotune", True),
        ("max-autotune-no-cudagraphs", False),
        (None, False),
    ],
)
def test_cuda_graphs_are_refused_with_accumulation(mode: str | None, refused: bool) -> None:
    config = TrainConfig(torchcompile="inductor", torchcompile_mode=mode, grad_accum_steps=2)
    if refused:
        with pytest.raises(
            ConfigError, match=f"{mode} cannot go with --grad-accum-steps 2: a CUDA"
        ):
            run.check_compiler(config)
    else:
        run.check_compiler(config)
