# ruff: noqa: RUF009 - setting makes dataclass fields
"""What `python -m sequence` can be told: train.py's settings, less those of images, and its own."""

from dataclasses import dataclass, fields

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.config.rules import Rule, setting

TASKS = ("listops", "pathfinder", "digits", "image", "text", "retrieval", "bytes")
DIFFICULTIES = ("easy", "intermediate", "hard")
ATTENTIONS = ("ls", "cst", "full", "window")

_POSITIVE = Rule(above=0)
_COUNT = Rule(least=0)

# What the engine reads of train.py's settings, and the data and run of which are the same here.
_SHARED = {
    *("data_dir", "batch_size", "device", "amp", "amp_dtype", "torchcompile", "torchcompile_mode"),
    *("float32_matmul_precision", "dist_timeout", "log_interval", "validation_batch_size"),
    *(
        "grad_accum_steps",
        "initial_checkpoint",
        "resume",
        "resume_changed",
        "no_resume_opt",
        "output",
        "experiment",
        "drop",
        "smoothing",
    ),
    *("opt", "opt_eps", "opt_betas", "momentum", "weight_decay", "clip_grad", "clip_mode"),
    *("opt_kwargs", "sched", "sched_on_updates", "lr", "lr_k_decay", "warmup_lr", "min_lr"),
    *("epochs", "stop_epoch", "warmup_epochs", "warmup_prefix", "cooldown_epochs", "decay_rate"),
    *("decay_epochs", "decay_milestones", "model_ema", "model_ema_decay", "model_ema_warmup"),
    *("seed", "recovery_interval", "checkpoint_hist", "val_interval", "save_epochs"),
    *("skip_nonfinite", "eval_metric", "log_grad_norm", "synchronize_step"),
}


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(TrainConfig):
    """A sequence task, its model and its training."""

    task: str = setting("listops", "what to train on", Rule(choices=TASKS))
    attention: str = setting(
        "ls",
        "long-short, composite slices, full, or long-short without projection",
        Rule(choices=ATTENTIONS),
    )
    window: int = setting(16, "w of long-short attention, in tokens", _COUNT)
    rank: int = setting(2, "r of long-short attention", _COUNT)
    segment: int = setting(16, "l of causal long-short attention, in tokens", _POSITIVE)
    slice_size: int = setting(16, "L of composite slices, in tokens", _POSITIVE)
    alpha: float = setting(1.0, "extent of a slice's keys", Rule(least=1, most=3))
    pooling: str = setting("", "default: cls, mean of slices", Rule(choices=("", "cls", "mean")))
    attn_drop: float = setting(
        0.0, "dropout of attention weights, long-short and full", Rule(least=0, below=1)
    )
    dim: int = setting(64, "width of the model", _POSITIVE)
    depth: int = setting(2, "blocks", _POSITIVE)
    num_heads: int = setting(2, "heads", _POSITIVE)
    hidden: int = setting(128, "width of the MLPs", _POSITIVE)
    length: int = setting(2048, "tokens of the longest sequence; longer texts are cut", _POSITIVE)
    epoch_updates: int | None = setting(
        None, "batches that make an epoch here; default: one pass over the data", _POSITIVE
    )
    memory: int = setting(0, "bytes before a block that are read without a gradient", _COUNT)
    residual: str = setting(
        "input",
        "what the branches of a byte model are added to; the LS paper's code: normalised",
        Rule(choices=("input", "normalised")),
    )
    samples: int = setting(4000, "training samples that are generated", _POSITIVE)
    brackets: bool = setting(True, "closing brackets in ListOps (the LS paper had none)")
    formula_depth: int = setting(10, "levels of the deepest ListOps formula", Rule(least=2))
    formula_length: list[int] = setting(
        [500, 2000], "a ListOps formula is longer and shorter", Rule(least=0, lengths=(2,))
    )
    difficulty: str = setting("hard", "of Pathfinder", Rule(choices=DIFFICULTIES))
    data_seed: int = setting(0, "of generated data", _COUNT)
    prompt: str = setting("", "what the byte model continues after training, with --generate")
    generate: int = setting(0, "bytes that it writes then", _COUNT)

    def check(self) -> None:
        """Raise ConfigError where settings contradict one another."""
        super().check()
        for broken, message in (
            (
                self.attention == "window" and self.task != "bytes",
                "--attention window is for --task bytes; elsewhere it is --attention ls --rank 0.",
            ),
            (
                self.attn_drop and (self.task == "bytes" or self.attention == "cst"),
                f"--attn-drop is for long-short and full attention on other tasks than bytes, got "
                f"--task {self.task} --attention {self.attention}.",
            ),
            (
                self.dim % self.num_heads or self.dim % 2,
                f"--dim must be even and divisible by --num-heads, got {self.dim}, "
                f"{self.num_heads}.",
            ),
            (
                self.attention == "cst" and self.pooling == "cls",
                "--pooling cls: composite slices have no class token.",
            ),
            (
                self.formula_length[0] + 1 >= self.formula_length[1],
                f"--formula-length must leave a length between its two, got {self.formula_length}.",
            ),
            (
                self.task == "listops"
                and not self.data_dir
                and self.formula_length[1] - 1 > self.length,
                f"--length must be at least {self.formula_length[1] - 1}, the longest formula of "
                f"--formula-length, or its label would be of more than is read, got {self.length}.",
            ),
            (
                self.task != "bytes" and (self.generate or self.memory),
                f"--generate and --memory are for --task bytes, got --task {self.task}.",
            ),
            (
                self.task == "bytes" and self.attention in ("ls", "window") and not self.window,
                "--window must be positive for --task bytes, got 0.",
            ),
            (
                self.attention == "cst" and self.memory,
                f"--memory is for long-short and full attention, got {self.memory} with cst.",
            ),
            (
                self.memory % self.segment,
                f"--memory must be whole segments of {self.segment}, got {self.memory}.",
            ),
            (
                self.attention == "cst"
                and self.generate
                and len(self.prompt.encode() or b" ") + self.generate > self.length,
                f"--prompt and --generate must fit into the --length {self.length} of composite "
                f"slices, got {len(self.prompt.encode() or b' ')} and {self.generate}.",
            ),
        ):
            if broken:
                raise ConfigError(message)


def check_given(given: set[str]) -> None:
    """Refuse the settings of images.

    Raises:
        ConfigError: One was given by flag or file.
    """
    own = {f.name for f in fields(SequenceConfig)} - {f.name for f in fields(TrainConfig)}
    unused = sorted(given - own - _SHARED)
    if unused:
        names = ", ".join("--" + name.replace("_", "-") for name in unused)
        raise ConfigError(f"sequence tasks have no use for {names}.")
