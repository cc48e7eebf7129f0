"""Attacks: robust accuracy in closed form, labels, cache and the mistakes that one line names."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.transforms import functional as TF

import robustness
from robustness import compare, page
from robustness.cli import main
from robustness.data.images import probe_picture
from robustness.reporting.analysis import Run, analyse
from robustness.rules.metrics import Metric, metrics
from robustness.rules.protocols import protocol_for
from robustness.rules.results import Report
from robustness.running.attacks import Attack, Attacked, FromPixels
from vit_ls.config import ConfigError

pytest.importorskip("secmlt", reason="needs the extra attacks")
pytest.importorskip("pyautoattack", reason="needs the extra attacks")

SIDE = 25
PIXELS = transforms.ToTensor()


class Linear(nn.Module):
    """Scores that are linear in the pixels: the distance to the other classes is known."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(classes)
        self.head = nn.Linear(3 * SIDE * SIDE, classes)
        with torch.no_grad():
            self.head.weight.normal_(std=0.02, generator=generator)
            # a grey picture is on the border of all classes
            self.head.bias.copy_(-0.5 * self.head.weight.sum(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cut = nn.functional.pad(x, (0, 1, 0, 1))[..., :SIDE, :SIDE]
        scores: torch.Tensor = self.head(cut.flatten(1))
        return scores

    @torch.no_grad()
    def reach(self, x: torch.Tensor, target: torch.Tensor, norm: str) -> torch.Tensor:
        """The distance at which another class catches up with the target, below 0 where wrong.

        A perturbation of norm eps moves z_i - z_j by at most eps times the dual norm of w_i - w_j.
        """
        scores = self(x)
        weights = self.head.weight
        apart = weights[target][:, None] - weights[None]
        dual = apart.abs().sum(-1) if norm == "linf" else apart.norm(dim=-1)
        lead = scores.gather(1, target[:, None]) - scores
        others = torch.ones_like(lead, dtype=torch.bool).scatter(1, target[:, None], False)
        return (lead / dual.clamp(min=1e-9)).masked_fill(~others, torch.inf).amin(dim=1)


def weave(root: Path, model: Linear, classes: int, count: int = 40) -> tuple[Path, torch.Tensor]:
    """A benchmark of one's own: random pictures, all but one under the model's own answer.

    They keep away from black and white, so that no perturbation is cut off there.
    """
    rng = np.random.default_rng(classes)
    pictures = rng.integers(90, 166, (count, SIDE, SIDE, 3)).astype(np.uint8)
    x = torch.stack([TF.to_tensor(Image.fromarray(p)) for p in pictures])
    target = model(x).argmax(1)
    target[0] = (target[0] + 1) % classes
    for place, (picture, answer) in enumerate(zip(pictures, target.tolist(), strict=True)):
        folder = root / "cloth" / str(answer)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{place:03d}.png")
    file = root / "cloth.yaml"
    text = (
        f"name: cloth\nlayout: classes\nclasses: {classes}\nimages: {count}\nimage_size: {SIDE}\n"
    )
    file.write_text(text)
    return file, x


def robust(report: Report) -> Metric:
    (found,) = (m for m in metrics(report) if m.name.startswith("robust top-1"))
    return found


def attacked(model: nn.Module, root: Path, file: Path, **options: Any) -> Report:
    return robustness.evaluate(model, PIXELS, root, benchmarks=[file], **options)


def expected(model: Linear, root: Path, norm: str, eps: float) -> int:
    """How many pictures no perturbation of that size can make wrong."""
    right = 0
    for file in (root / "cloth").rglob("*.png"):
        x = TF.to_tensor(Image.open(file))[None]
        reach = model.reach(x, torch.tensor([int(file.parent.name)]), norm)
        assert (reach / eps - 1).abs() > 1e-3, "too near to call"
        right += int(reach > eps)
    return right


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.4 / 255), ("l2", 0.06)])
def test_robust_accuracy_of_a_linear_model_under_pgd_is_the_closed_form(
    tmp_path: Path, norm: str, eps: float
) -> None:
    model = Linear(2).eval()
    file, _ = weave(tmp_path, model, 2)
    number = robust(attacked(model, tmp_path, file, attacks=["pgd"], eps=eps, norm=norm))
    right = expected(model, tmp_path, norm, eps)
    assert 5 < right < 35
    assert (number.right, number.images) == (right, 40)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.2 / 255), ("l2", 0.02)])
def test_robust_accuracy_of_a_linear_model_under_autoattack_is_the_closed_form(
    tmp_path: Path, norm: str, eps: float
) -> None:
    model = Linear(5).eval()
    file, _ = weave(tmp_path, model, 5)
    options = {"eps": eps, "norm": norm, "batch_size": 40}
    number = robust(attacked(model, tmp_path, file, attacks=["autoattack"], **options))
    right = expected(model, tmp_path, norm, eps)
    assert 5 < right < 35
    assert number.right == right


def test_the_normalisation_is_within_the_attacked_model() -> None:
    config = {
        "input_size": (3, 16, 16),
        "interpolation": "bicubic",
        "mean": (0.4, 0.5, 0.6),
        "std": (0.2, 0.25, 0.3),
        "crop_pct": 1.0,
        "crop_mode": "center",
    }
    protocol = protocol_for("model", config, None)
    picture = probe_picture(20, 30)
    pixels = protocol.pixels(picture)
    assert 0 <= pixels.min() <= 0.2 < pixels.max() <= 1
    whole = FromPixels(nn.Identity(), protocol.normalisation, "cpu")
    assert torch.equal(whole(pixels[None])[0], protocol.apply(picture))


def test_what_an_attack_leaves_lies_in_the_ball_and_among_pixels() -> None:
    model = Linear(3).eval()
    x = torch.rand(8, 3, SIDE, SIDE)
    target = model(x).argmax(1)
    target[0] = (target[0] + 1) % 3
    for norm, eps in (("linf", 0.05), ("l2", 0.5)):
        attack = Attack.of("pgd", norm, eps, steps=7, batch_size=8)
        found = Attacked(attack, None)
        state = torch.random.get_rng_state()
        changed = found.perturbed(found.from_pixels(model), x, target)
        assert torch.equal(torch.random.get_rng_state(), state)
        apart = (changed - x).flatten(1)
        size = apart.abs().amax(1) if norm == "linf" else apart.norm(dim=1)
        assert 0.9 * eps < size[1:].max() <= eps + 1e-6
        assert size[0] == 0  # wrong already
        assert 0 <= changed.min() < changed.max() <= 1


def test_counts_depend_on_no_batch_and_on_no_random_number(tmp_path: Path) -> None:
    model = Linear(3).eval()
    file, _ = weave(tmp_path, model, 3)
    rights = set()
    for batch_size in (40, 7):
        torch.manual_seed(batch_size)
        report = attacked(
            model, tmp_path, file, attacks=["pgd"], eps="1/255", batch_size=batch_size
        )
        rights.add(robust(report).right)
    assert len(rights) == 1


def test_eps_norm_and_steps_are_in_the_label_and_in_the_cache_s_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Linear(2).eval()
    file, _ = weave(tmp_path, model, 2, 6)
    asked: list[dict[str, Any]] = [
        {"eps": "2/255"},
        {"eps": "1/255"},
        {"eps": 2 / 255, "norm": "l2"},
        {"eps": "2/255", "attack_steps": 5},
    ]
    names, cells = [], []
    for number, options in enumerate(asked):
        out = tmp_path / f"out{number}"
        kept = {"attacks": ["pgd"], "cache": tmp_path / "cache", "output": out}
        report = attacked(model, tmp_path, file, **kept, **options)
        names.append(robust(report).name)
        cells += list(report.results[0].attacks)
        assert "secml-torch" in robust(report).note
    assert names == [
        "robust top-1, PGD, Linf, eps 2/255, 20 steps",
        "robust top-1, PGD, Linf, eps 1/255, 20 steps",
        "robust top-1, PGD, L2, eps 0.00784314, 20 steps",
        "robust top-1, PGD, Linf, eps 2/255, 5 steps",
    ]
    assert len(set(cells)) == 4
    keys = [json.loads(f.read_text())["key"] for f in (tmp_path / "cache").rglob("*.json")]
    assert len(keys) == 5  # the clean cell once
    assert len({key.get("attack") for key in keys}) == 5
    monkeypatch.setattr("robustness.running.run.run_cell", lambda *_: pytest.fail("evaluated"))
    again = attacked(model, tmp_path, file, **kept, **asked[3])
    assert again.to_dict() == report.to_dict()


def test_the_report_the_page_and_the_analysis_know_the_attacked_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Linear(2).eval()
    file, _ = weave(tmp_path, model, 2)
    for name, eps in (("one", "2/255"), ("two", "1/255")):
        report = attacked(
            model, tmp_path, file, attacks=["pgd"], eps=eps, output=tmp_path / name, name=name
        )
    lines = {(line.cell, line.name): line for line in analyse(Run(tmp_path / "two"))}
    (cell,) = report.results[0].attacks
    value = robust(report).value
    assert value is not None
    assert lines[cell, "top-1 lost to the attack"].value == pytest.approx(97.5 - value)
    reports = [str(tmp_path / name / "report.json") for name in ("one", "two")]
    assert compare.main([*reports, "--output", str(tmp_path / "both")]) == 0
    printed = capsys.readouterr().out
    assert "not comparable" not in printed  # other attacks are other rows, and clean is clean
    assert "| cloth | top-1 | higher | 97.50 | 97.50 |" in printed
    folders = [str(tmp_path / name) for name in ("one", "two")]
    assert page.main([*folders, "--output", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    headline = text.partition("<h2>Headline</h2>")[2].partition("<h2>")[0]
    assert "robust top-1, PGD, Linf, eps 2/255, 20 steps" in headline


ASK = ["--model", "test_resnet", "--random-weights", "--workers", "0", "--suites", "digits"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attack", "fgsm", "--eps", "4/255"], "must be one of pgd, autoattack, got fgsm"),
        (["--attack", "pgd"], "--attack needs --eps, in pixels of [0, 1], such as 4/255"),
        (["--attack", "pgd", "--eps", "4"], "--eps must be at most 1 for linf: pixels lie in [0,"),
        (["--attack", "pgd", "--eps", "0"], "--eps must be above 0, got 0"),
        (["--attack", "pgd", "--eps", "nan"], "--eps must be a number or a fraction"),
        (["--attack", "pgd", "--eps", "4/0"], "--eps must be a number or a fraction"),
        (
            ["--attack", "pgd", "--eps", "1/255", "--norm", "l1"],
            "--norm must be one of linf, l2",
        ),
        (["--attack", "pgd", "--eps", "1/255", "--attack-steps", "0"], "must be at least 1, got 0"),
        (["--attack", "autoattack", "--eps", "1", "--attack-steps", "9"], "goes with --attack pgd"),
        (["--attack", "pgd", "--eps", "1/255", "--dtype", "bfloat16"], "needs --dtype float32, go"),
        (["--eps", "1/255"], "--eps, --norm and --attack-steps go with --attack"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main([*ASK, *out, *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_suite_that_takes_no_attack_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "imagenet-a").mkdir()
    ask = [*ASK[:-1], "imagenet-a", "--data-root", str(tmp_path), "--output", str(tmp_path / "o")]
    assert main([*ask, "--cache", str(tmp_path / "c"), "--attack", "pgd", "--eps", "1/255"]) == 2
    assert "not with imagenet-a" in capsys.readouterr().err


def test_a_missing_library_is_one_line_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("robustness.running.attacks.ATTACKS", {"pgd": "secml-torch-is-not-here"})
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[attacks\]'"):
        Attack.of("pgd", "linf", "1/255", steps=20, batch_size=1)


class Steps(Linear):
    """Looks at rounded pixels: no gradient passes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.round())


class Grey(Linear):
    """Looks at pixels that were cut off from the graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.detach())


@pytest.mark.parametrize("kind", [Steps, Grey])
def test_a_model_without_gradients_is_refused_and_not_called_robust(
    kind: type[Linear], tmp_path: Path
) -> None:
    file, _ = weave(tmp_path, Linear(2), 2, 4)
    with pytest.raises(ConfigError, match=f"needs gradients, and {kind.__name__} gives none"):
        attacked(kind(2), tmp_path, file, attacks=["pgd"], eps="1/255")


def test_a_transform_that_normalises_is_refused(tmp_path: Path) -> None:
    model = Linear(2)
    file, _ = weave(tmp_path, model, 2, 4)
    whole = transforms.Compose([PIXELS, transforms.Normalize((0.5,) * 3, (0.5,) * 3)])
    with pytest.raises(ConfigError, match=r"ends with pixels in \[0, 1\].* got -1 to"):
        robustness.evaluate(model, whole, tmp_path, benchmarks=[file], attacks=["pgd"], eps="1/255")


def test_autoattack_of_pictures_that_are_too_small_is_refused() -> None:
    attack = Attack.of("autoattack", "l2", 0.5, steps=20, batch_size=1)
    found = Attacked(attack, None)
    with pytest.raises(ConfigError, match="at least 25 pixels a side, got 24"):
        found.check(Linear(5), torch.rand(1, 3, 24, 24), "small")


def test_autoattack_of_too_few_classes_is_refused(tmp_path: Path) -> None:
    model = Linear(2)
    file, _ = weave(tmp_path, model, 2, 4)
    with pytest.raises(ConfigError, match="needs at least 4 classes, got 2"):
        attacked(model, tmp_path, file, attacks=["autoattack"], eps="1/255")


def test_the_libraries_say_nothing_on_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Linear(2)
    file, _ = weave(tmp_path, model, 2, 4)
    with caplog.at_level(logging.WARNING):
        attacked(model, tmp_path, file, attacks=["pgd"], eps="1/255")
    assert not caplog.records
