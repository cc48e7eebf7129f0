"""What is asked and how it is run: the settings of the suite, checked together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from robustness.corruptions.weather import frost_photographs
from robustness.data.benchmarks import BENCHMARKS, Benchmark, choose
from robustness.data.images import Generator
from robustness.data.own import read_benchmark
from robustness.data.sources import Places
from robustness.running.attacks import STEPS, Attack
from robustness.running.plan import Request
from robustness.scores.capture import KEEPS
from vit_ls.config import ConfigError
from vit_ls.job import device_named


@dataclass(frozen=True)
class Options:
    """What is asked and how it is run.

    Attributes:
        data_root: Folder of the benchmarks' folders.
        suites: Names of benchmarks; None for all that are found.
        benchmarks: YAML files of benchmarks of one's own.
        folders: Folders of benchmarks that do not lie under the root, by name.
        max_images: A fixed subset of each cell.
        generate: Corrupt the validation set on the fly.
        seed: Of the generated corruptions.
        frost_dir: Photographs of frost to generate with.
        verify: Know images by their bytes, not by their sizes and times of modification.
        device: What the model computes on; "auto" is the accelerator where there is one.
        dtype: Of the computation.
        batch_size: Images per step and process.
        workers: Processes that read images.
        cache: Folder of finished cells; None keeps nothing.
        dist_timeout: Seconds until a lost process ends the run.
        output: Folder of the report and the predictions; None writes nothing.
        overwrite: Write where the report of another question lies.
        attacks: On the clean images of the suites that take them: "pgd", "autoattack".
        eps: Largest distance of the attacks, in pixels of [0, 1]: a number, or a text as "8/255".
        norm: Of that distance: "linf" or "l2".
        attack_steps: Of PGD; None for 20.
        keep: Scores to keep beside the predictions: "logits", "features", "both", or "" for none.
        fail_if: Rules that fail the report where they hold: "imagenet-c:mce > 60".
        baseline: Report of an older run.
        fail_if_worse: Points by which a headline number may fall behind it.
    """

    data_root: Path | None = None
    suites: Sequence[str] | None = None
    benchmarks: Sequence[Path] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    max_images: int | None = None
    generate: bool = False
    seed: int = 0
    frost_dir: Path | None = None
    verify: bool = False
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    batch_size: int = 64
    workers: int = 0
    cache: Path | None = None
    dist_timeout: float = 1800.0
    output: Path | None = None
    overwrite: bool = False
    attacks: Sequence[str] = ()
    eps: str | float | None = None
    norm: str = "linf"
    attack_steps: int | None = None
    keep: str = ""
    fail_if: Sequence[str] = ()
    baseline: Path | None = None
    fail_if_worse: float | None = None

    def __post_init__(self) -> None:
        """Take paths as texts too, and one name where several may stand."""
        for name in ("data_root", "frost_dir", "cache", "output", "baseline"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else Path(value))
        for name in ("suites", "benchmarks", "attacks", "fail_if"):
            value = getattr(self, name)
            if isinstance(value, str | Path):
                object.__setattr__(self, name, [value])
        object.__setattr__(self, "benchmarks", [Path(file) for file in self.benchmarks])
        folders = {name: Path(folder) for name, folder in self.folders.items()}
        object.__setattr__(self, "folders", folders)

    def request(self) -> Request:
        """The benchmarks and where they lie.

        Raises:
            ConfigError: A name is unknown, a folder or value is wrong, or no benchmark is there.
        """
        for name, least in (
            ("max_images", 1), ("batch_size", 1), ("workers", 0), ("dist_timeout", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be at least {least}, got {value}.")
        if self.data_root is not None and not self.data_root.is_dir():
            raise ConfigError(f"--data-root: no folder {self.data_root}.")
        if self.frost_dir is not None:
            frost_photographs(self.frost_dir)
        device_named(self.device)
        own = [read_benchmark(file) for file in self.benchmarks]
        if len({row.name for row in own}) < len(own):
            raise ConfigError("--benchmark has two files of one name.")
        rows = choose(self.suites, own)
        self._check_folders(rows)
        generator = Generator(self.seed, self.frost_dir)
        folders = dict(self.folders)
        places = Places(self.data_root, self.generate, generator, folders, self.cache)
        named = self.suites is not None or bool(own)
        attacks = self._attacks()
        if self.keep not in ("", *KEEPS):
            raise ConfigError(f"--keep must be one of {', '.join(KEEPS)}, got {self.keep}.")
        request = Request(rows, places, named, self.max_images, self.verify, attacks, self.keep)
        if not any(places.source(row) for row in rows):
            looked = "; ".join(f"{row.name}: {places.looked(row)}" for row in rows)
            raise ConfigError(f"no benchmark is there. {looked}")
        return request

    def _attacks(self) -> list[Attack]:
        if not self.attacks:
            if self.eps is not None or self.attack_steps is not None or self.norm != "linf":
                raise ConfigError("--eps, --norm and --attack-steps go with --attack.")
            return []
        if self.eps is None:
            raise ConfigError("--attack needs --eps, in pixels of [0, 1], such as 4/255.")
        if self.attack_steps is not None and "pgd" not in self.attacks:
            raise ConfigError("--attack-steps goes with --attack pgd: AutoAttack has its own.")
        if self.dtype != torch.float32:
            what = str(self.dtype).removeprefix("torch.")
            raise ConfigError(
                f"--attack needs --dtype float32, got {what}: gradients that it rounds to nothing "
                "look like robustness."
            )
        steps = STEPS if self.attack_steps is None else self.attack_steps
        return [
            Attack.of(name, self.norm, self.eps, steps=steps, batch_size=self.batch_size)
            for name in dict.fromkeys(self.attacks)
        ]

    def _check_folders(self, rows: Sequence[Benchmark]) -> None:
        known = {*BENCHMARKS, *(row.name for row in rows)}
        for name, folder in self.folders.items():
            if name not in known:
                raise ConfigError(f"--folder has no suite named {name}; known: {', '.join(known)}.")
            if not folder.is_dir():
                raise ConfigError(f"--folder: no folder {folder} for {name}.")
