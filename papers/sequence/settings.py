# ruff: noqa: RUF009 - setting makes dataclass fields
"""What the sequence tasks can be told: train.py's settings less those of images, and their own."""

from dataclasses import dataclass

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.config.rows import ABOVE_0, NOT_BELOW_0, Rule, rows, setting

TASKS = ("listops", "pathfinder", "digits", "image", "text", "retrieval", "bytes")
DIFFICULTIES = ("easy", "intermediate", "hard")
ATTENTIONS = ("ls", "cst", "full", "window")


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(TrainConfig):
    """A sequence task, its model and its training."""

    task: str = setting("listops", "what to train on", Rule(choices=TASKS))
    attention: str = setting(
        "ls",
        "long-short, composite slices, full, or long-short without projection",
        Rule(choices=ATTENTIONS),
    )
    window: int = setting(16, "w of long-short attention, in tokens", NOT_BELOW_0)
    rank: int = setting(2, "r of long-short attention", NOT_BELOW_0)
    segment: int = setting(16, "l of causal long-short attention, in tokens", ABOVE_0)
    slice_size: int = setting(16, "L of composite slices, in tokens", ABOVE_0)
    alpha: float = setting(1.0, "extent of a slice's keys", Rule(least=1, most=3))
    pooling: str = setting("", "default: cls, mean of slices", Rule(choices=("", "cls", "mean")))
    attn_drop: float = setting(
        0.0, "dropout of attention weights, long-short and full", Rule(least=0, below=1)
    )
    dim: int = setting(64, "width of the model", ABOVE_0)
    depth: int = setting(2, "blocks", ABOVE_0)
    num_heads: int = setting(2, "heads", ABOVE_0)
    hidden: int = setting(128, "width of the MLPs", ABOVE_0)
    length: int = setting(2048, "tokens of the longest sequence; longer texts are cut", ABOVE_0)
    epoch_updates: int | None = setting(
        None, "batches that make an epoch here; default: one pass over the data", ABOVE_0
    )
    memory: int = setting(0, "bytes before a block that are read without a gradient", NOT_BELOW_0)
    residual: str = setting(
        "input",
        "what the branches of a byte model are added to; the LS paper's code: normalised",
        Rule(choices=("input", "normalised")),
    )
    samples: int = setting(4000, "training samples that are generated", ABOVE_0)
    brackets: bool = setting(True, "closing brackets in ListOps (the LS paper had none)")
    formula_depth: int = setting(10, "levels of the deepest ListOps formula", Rule(least=2))
    formula_length: list[int] = setting(
        [500, 2000], "a ListOps formula is longer and shorter", Rule(least=0, lengths=(2,))
    )
    difficulty: str = setting("hard", "of Pathfinder", Rule(choices=DIFFICULTIES))
    data_seed: int = setting(0, "of generated data", NOT_BELOW_0)
    prompt: str = setting("", "what the byte model continues after training, with --generate")
    generate: int = setting(0, "bytes that it writes then", NOT_BELOW_0)

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
    of_images = {name for name, row in rows(TrainConfig).items() if not row.sequence}
    unused = sorted(given & of_images)
    if unused:
        names = ", ".join("--" + name.replace("_", "-") for name in unused)
        raise ConfigError(f"sequence tasks have no use for {names}.")
