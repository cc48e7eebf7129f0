"""Adversarial attacks on the pixels, by the libraries of the extra `attacks`.

Both are white-box and know the whole model, its normalisation included: `eps` is a distance between
pictures whose values lie in [0, 1]. An image that is wrong without an attack is wrong under it, as
robust accuracy has it: it is the worst over the whole ball, whose centre the image is.

PGD is secml-torch's own, from the image itself, so that nothing in it is drawn; AutoAttack is its
authors' code, in the standard version. What AutoAttack draws depends on the batch: its size is a
part of the attack.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from robustness.rules.protocols import Normalisation
from vit_ls.config import ConfigError

ATTACKS = {"pgd": "secml-torch", "autoattack": "pyautoattack"}
"""Attacks and the distributions that have them."""

NORMS = ("linf", "l2")
STEPS = 20

_TITLES = {"pgd": "PGD", "autoattack": "AutoAttack", "linf": "Linf", "l2": "L2"}
_TARGETS = 9
"""Classes that the targeted attacks of AutoAttack's standard version aim at."""

_FEWEST_CLASSES = 4
"""Its loss looks at the four best classes."""

_FEWEST_PIXELS = 25
"""Side from which on the grid that its search by squares begins with fits."""


@dataclass(frozen=True)
class Attack:
    """One attack; all that decides its outcome beside the model and the images.

    Attributes:
        name: A key of `ATTACKS`.
        norm: One of `NORMS`.
        eps: Largest distance, in pixels of [0, 1].
        steps: Of PGD; 0 for AutoAttack, which has its own.
        batch_size: Images that are attacked together, where that matters; else 0.
        library: What runs it, with its version.
    """

    name: str
    norm: str
    eps: float
    steps: int
    batch_size: int
    library: str

    @classmethod
    def of(cls, name: str, norm: str, eps: str | float, *, steps: int, batch_size: int) -> "Attack":
        """Check and make one.

        Args:
            name: A key of `ATTACKS`.
            norm: One of `NORMS`.
            eps: A number or a fraction such as "8/255".
            steps: Of PGD.
            batch_size: Images that are attacked together.

        Raises:
            ConfigError: There is no such attack or norm, eps or the number of steps is out of
                range, or the library is not installed.
        """
        for flag, value, known in (("--attack", name, ATTACKS), ("--norm", norm, NORMS)):
            if value not in known:
                raise ConfigError(f"{flag} must be one of {', '.join(known)}, got {value}.")
        if steps < 1:
            raise ConfigError(f"--attack-steps must be at least 1, got {steps}.")
        try:
            library = f"{ATTACKS[name]} {version(ATTACKS[name])}"
        except PackageNotFoundError:
            raise ConfigError(
                f"--attack {name} needs {ATTACKS[name]}: pip install -e '.[attacks]'."
            ) from None
        drawn = name == "autoattack"
        return cls(
            name,
            norm,
            _distance(eps, norm),
            0 if drawn else steps,
            batch_size if drawn else 0,
            library,
        )

    @property
    def cell(self) -> str:
        """Name of its cell: no two attacks of one library have the same."""
        more = f"batch{self.batch_size}" if self.batch_size else str(self.steps)
        return f"{self.name}-{self.norm}-{self.eps:.9g}-{more}"

    @property
    def label(self) -> str:
        """For people."""
        of_255 = self.eps * 255
        whole = self.norm == "linf" and math.isclose(of_255, round(of_255), rel_tol=1e-6)
        eps = f"{round(of_255)}/255" if whole and round(of_255) else f"{self.eps:g}"
        more = f", {self.steps} steps" if self.steps else ""
        return f"{_TITLES[self.name]}, {_TITLES[self.norm]}, eps {eps}{more}"

    @property
    def identity(self) -> str:
        """For the cache's key."""
        return json.dumps(asdict(self), sort_keys=True)


def _distance(eps: str | float, norm: str) -> float:
    try:
        found = float(Fraction(eps) if isinstance(eps, str) else eps)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(
            f"--eps must be a number or a fraction such as 8/255, got {eps}."
        ) from None
    if not 0 < found < math.inf:
        raise ConfigError(f"--eps must be above 0, got {eps}.")
    if norm == "linf" and found > 1:
        raise ConfigError(f"--eps must be at most 1 for linf: pixels lie in [0, 1], got {eps}.")
    return found


class FromPixels(nn.Module):
    """A model that takes pixels in [0, 1]: the normalisation is a part of it."""

    def __init__(self, model: nn.Module, normalisation: Normalisation | None, device: Any) -> None:
        super().__init__()
        self.model = model
        self.normalisation = None
        # A parameter besides, by which the library finds the device of a model that has none.
        self.where = nn.Parameter(torch.zeros(0, device=device), requires_grad=False)
        if normalisation is not None:
            mean, std = (torch.tensor(v, device=device)[:, None, None] for v in normalisation)
            self.normalisation = (mean, std)

    def forward(self, pixels: Tensor) -> Tensor:
        """Class scores of pixels [B, C, H, W]."""
        if self.normalisation is not None:
            mean, std = self.normalisation
            pixels = (pixels - mean) / std
        scores: Tensor = self.model(pixels)
        return scores


@dataclass(frozen=True)
class Attacked:
    """An attack on a model whose images are prepared up to the normalisation."""

    attack: Attack
    normalisation: Normalisation | None

    def from_pixels(self, model: nn.Module) -> FromPixels:
        """The model with the normalisation in it."""
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        return FromPixels(model, self.normalisation, device).eval()

    def perturbed(self, model: nn.Module, pixels: Tensor, targets: Tensor) -> Tensor:
        """The pictures as the attack leaves them; those that were wrong stay as they are.

        Args:
            model: Of pixels (`from_pixels`).
            pixels: [B, C, H, W] in [0, 1].
            targets: [B].
        """
        with _frozen(model):
            with torch.no_grad():
                right = model(pixels).argmax(dim=1) == targets
            found = pixels.clone()
            if right.any():
                run = {"pgd": _pgd, "autoattack": _autoattack}[self.attack.name]
                found[right] = run(self.attack, model, pixels[right], targets[right])
        return found

    def check(self, model: nn.Module, pixels: Tensor, name: str) -> None:
        """Try the attack's needs on one picture, before hours are spent.

        Args:
            model: As it is evaluated.
            pixels: [1, C, H, W], prepared up to the normalisation.
            name: Of the model.

        Raises:
            ConfigError: The values are not in [0, 1], there is no gradient, or too few classes.
        """
        low, high = pixels.min().item(), pixels.max().item()
        if low < 0 or high > 1:
            raise ConfigError(
                "--attack needs a transform that ends with pixels in [0, 1], and a model that "
                f"normalises them itself, got {low:.3g} to {high:.3g}."
            )
        attacked = self.from_pixels(model)
        with _frozen(attacked), torch.enable_grad():
            asked = pixels.clone().requires_grad_()
            scores = attacked(asked)
            gradient = None
            if scores.requires_grad:
                least = scores.argmin(dim=1)
                loss = nn.functional.cross_entropy(scores, least)
                (gradient,) = torch.autograd.grad(loss, asked, allow_unused=True)
        if gradient is None or not gradient.isfinite().all() or not gradient.any():
            raise ConfigError(f"--attack needs gradients, and {name} gives none that can be used.")
        if self.attack.name == "autoattack":
            classes = scores.shape[1]
            if classes < _FEWEST_CLASSES:
                raise ConfigError(
                    f"--attack autoattack needs at least {_FEWEST_CLASSES} classes, got {classes}."
                )
            _check_size(pixels)


def _check_size(pixels: Tensor) -> None:
    side = min(pixels.shape[-2:])
    if side < _FEWEST_PIXELS:
        raise ConfigError(
            f"--attack autoattack needs images of at least {_FEWEST_PIXELS} pixels a side, "
            f"got {side}."
        )


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No gradient is kept for the parameters, and the caller's random numbers stay as they were."""
    asked = [p for p in model.parameters() if p.requires_grad]
    for parameter in asked:
        parameter.requires_grad_(False)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


def _pgd(attack: Attack, model: nn.Module, pixels: Tensor, targets: Tensor) -> Tensor:
    from secmlt.adv.backends import Backends
    from secmlt.adv.evasion.perturbation_models import LpPerturbationModels
    from secmlt.adv.evasion.pgd import PGD

    norms = {"linf": LpPerturbationModels.LINF, "l2": LpPerturbationModels.L2}
    # The step is that of Madry et al.'s challenge. Its random start is left out: the library draws
    # around the picture instead of around zero, and so begins at a corner of the ball.
    run = PGD(
        norms[attack.norm],
        attack.eps,
        attack.steps,
        2.5 * attack.eps / attack.steps,
        random_start=False,
        backend=Backends.NATIVE,
    )
    batch: DataLoader[Any] = DataLoader(TensorDataset(pixels, targets), batch_size=len(pixels))
    with torch.enable_grad():
        ((found, _),) = run(model, batch, stream=True)
    adversarial: Tensor = found.detach()
    return adversarial


def _autoattack(attack: Attack, model: nn.Module, pixels: Tensor, targets: Tensor) -> Tensor:
    from pyautoattack import AutoAttack

    _check_size(pixels)  # A caller's own transform may leave each image its size.
    norm = {"linf": "Linf", "l2": "L2"}[attack.norm]
    run = AutoAttack(model, norm=norm, eps=attack.eps, seed=0, device=pixels.device)
    with torch.no_grad():
        others = model(pixels[:1]).shape[1] - 1
    for part in (run.apgd_targeted, run.fab):
        part.n_target_classes = min(_TARGETS, others)
    # It asks for gradients itself where it needs them.
    found, _ = run.run_standard_evaluation(pixels, targets, batch_size=len(pixels))
    adversarial: Tensor = found.detach()
    return adversarial
