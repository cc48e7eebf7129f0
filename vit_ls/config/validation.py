"""What validate.py can be told."""

from dataclasses import dataclass

from vit_ls.config.rows import ABOVE_0, ConfigError, Rule, setting
from vit_ls.config.shared import WEIGHTS, WEIGHTS_HELP, DataConfig


@dataclass(frozen=True, kw_only=True)
class ValidateConfig(DataConfig):
    """Evaluation. What is not set is taken from the checkpoint's own run."""

    split: str = setting(
        "validation", "split of the data set; '' is the whole folder or tar", inherited=True
    )
    num_samples: int | None = setting(None, "images in it, if the reader cannot tell", ABOVE_0)
    checkpoint: str = setting("", "file with the weights", known_as="checkpoint_path")
    weights: str | None = setting(None, f"{WEIGHTS_HELP}; default: best", Rule(choices=WEIGHTS))
    use_ema: bool | None = setting(None, "the same as --weights ema; --no-use-ema: --weights raw")
    random_weights: bool = setting(False, "evaluate a model that has no weights but random ones")
    seed: int = setting(42, "of the random weights", Rule(least=0, most=2**31 - 1))
    use_train_size: bool = setting(
        False, "the training size, where the model has another for tests"
    )
    real_labels: str | None = setting(None, "ReaL labels: a JSON file, or 'builtin'")
    per_class: str = setting("", "write the accuracy of each class to this CSV file")
    results_file: str = setting("", "append the result to this CSV file")

    @property
    def weights_asked(self) -> str:
        """Which weights of a file are asked for, one of `WEIGHTS`."""
        by_timms_name = {True: "ema", False: "raw", None: "best"}[self.use_ema]
        return self.weights or by_timms_name

    def check(self) -> None:
        """Raise ConfigError where the settings name no weights, or contradict one another."""
        weights = self.checkpoint or self.pretrained or self.pretrained_path
        file = self.checkpoint or self.pretrained_path
        asked = {True: "--use-ema", False: "--no-use-ema", None: "--weights"}[self.use_ema]
        for broken, message in (
            (
                not weights and not self.random_weights,
                "--checkpoint FILE, --pretrained or --pretrained-path FILE must say which weights "
                "to evaluate (--random-weights: none).",
            ),
            (
                bool(weights) and self.random_weights,
                "--random-weights cannot go with other weights.",
            ),
            (
                bool(self.checkpoint) and bool(self.pretrained or self.pretrained_path),
                "--checkpoint cannot go with --pretrained or --pretrained-path: they are other "
                "weights.",
            ),
            (
                (self.use_ema is not None or self.weights is not None) and not file,
                f"{asked} needs --checkpoint FILE.",
            ),
            (
                self.use_ema is not None
                and self.weights not in (None, "ema" if self.use_ema else "raw"),
                f"{asked} contradicts --weights {self.weights}.",
            ),
        ):
            if broken:
                raise ConfigError(message)
