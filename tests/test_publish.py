"""Folders for the Hub: what timm and transformers load from them, and what their card says."""

import json
import shutil

import pytest
import timm
import torch
from timm.models import push_to_hf_hub

import publish
import vit_ls  # noqa: F401  registers the models
from robustness.reporting.report import to_json
from robustness.rules.results import CellResult, Report, Result
from robustness.running.identity import weights_digest
from vit_ls.config import ConfigError, TrainConfig, asdict
from vit_ls.errors import RunFailedError

ROW = {"epoch": 2, "train_loss": 0.5, "eval_top1": 91.25, "eval_loss": 0.31}
SETTINGS = {"model": "test_cvt_ls", "num_classes": 10, "img_size": 48, "lr": 0.125}


def checkpoint(folder, *, batch=0, **settings):
    torch.manual_seed(1)
    model = timm.create_model("test_cvt_ls", num_classes=10)
    run = asdict(TrainConfig()) | SETTINGS | {"data_dir": "/home/me/secret"} | settings
    content = {
        "version": 2,
        "epoch": 2,
        "arch": "test_cvt_ls",
        "args": run,
        "classes": {f"digit {i}": i for i in range(10)},
        "position": {"epoch": 3, "batch": batch},
        "summary": [ROW],
        "state_dict": model.state_dict(),
    }
    path = folder / "model_best.pth.tar"
    torch.save(content, path)
    return path, model.eval()


def report_of(model, path):
    cell = CellResult({"top1": 7, "top5": 9, "top1_unmasked": 7, "images": 10})
    identity = {"transform": "t", "images": "10", "data": "d"}
    of = {"name": "m", "arguments": {}, "weights": weights_digest(model), "dtype": "float32",
          "origin": "checkpoint", "class": "M"}  # fmt: skip
    cells = {"all": cell}
    result = Result("imagenet-a", "masked", "a", "official", "t", identity, 10, ["all"], cells)
    path.write_text(to_json(Report(of, [result])))
    return path


def make(tmp_path, path, *more):
    out = tmp_path / "folder"
    publish.main(["--checkpoint", str(path), "--name", "digits", "--out", str(out), *more])
    return out


def test_timm_loads_the_folder_with_the_same_answers(tmp_path):
    path, model = checkpoint(tmp_path)
    out = make(tmp_path, path)
    loaded = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    images = torch.randn(2, 3, 48, 48)
    assert torch.equal(loaded(images), model(images))
    assert loaded.pretrained_cfg["label_names"][3] == "digit 3"
    assert timm.data.resolve_model_data_config(loaded)["input_size"] == (3, 48, 48)
    assert not list(out.glob("*.bin"))


def test_the_wrapper_of_transformers_loads_the_folder_as_it_is(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs the extra clients")
    path, model = checkpoint(tmp_path)
    out = make(tmp_path, path)
    wrapped = transformers.TimmWrapperForImageClassification.from_pretrained(out).eval()
    images = torch.randn(2, 3, 48, 48)
    assert torch.equal(wrapped(images).logits, model(images))


def test_the_card_has_results_recipe_and_report(tmp_path):
    path, model = checkpoint(tmp_path)
    out = make(tmp_path, path, "--report", str(report_of(model, tmp_path / "report.json")))
    card = (out / "README.md").read_text()
    assert "| top1 | 91.25 |" in card
    assert "| epoch | 2 |" in card
    assert "lr: 0.125" in card
    assert "secret" not in card
    assert "70.00" in card  # 7 of 10
    assert weights_digest(model) in card
    assert "arXiv:2107.02192" in card


def test_a_report_of_other_weights_is_refused(tmp_path):
    path, _ = checkpoint(tmp_path)
    other = report_of(timm.create_model("test_cvt_ls"), tmp_path / "report.json")
    with pytest.raises(ConfigError, match="must be of the checkpoint's weights"):
        make(tmp_path, path, "--report", str(other))


def test_results_of_other_weights_are_left_out(tmp_path):
    path, _ = checkpoint(tmp_path, batch=5)  # trained on since the last evaluation
    card = (make(tmp_path, path) / "README.md").read_text()
    assert "91.25" not in card
    assert "Not measured" in card


def test_a_folder_with_files_is_refused(tmp_path):
    path, _ = checkpoint(tmp_path)
    make(tmp_path, path)
    with pytest.raises(ConfigError, match="--out must be a new or an empty folder"):
        make(tmp_path, path)


def test_the_checkpoint_of_another_program_is_refused(tmp_path):
    path = tmp_path / "x.pth"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(ConfigError, match=r"--checkpoint must be of train\.py"):
        make(tmp_path, path)


def refuse(*_, **__):
    raise OSError("not logged in")


class Hub:
    """Keeps what would be uploaded."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, **_):
        return self

    def create_repo(self, repo_id, **_):
        self.repo_id = repo_id
        return self

    def file_exists(self, **_):
        return False

    def upload_folder(self, *, repo_id, folder_path, **_):
        shutil.copytree(folder_path, self.folder / repo_id)
        return f"https://hub/{repo_id}"


def test_a_push_uploads_the_folder(tmp_path, monkeypatch, capsys):
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    path, _ = checkpoint(tmp_path)
    out = make(tmp_path, path, "--push", "me/digits")
    names = {file.name for file in (hub.folder / "me" / "digits").iterdir()}
    assert names == {"README.md", "config.json", "model.safetensors"}
    assert names == {file.name for file in out.iterdir()}
    assert capsys.readouterr().out == "weights: raw\nhttps://hub/me/digits\n"
    assert '"hf-hub:me/digits"' in (out / "README.md").read_text()


def test_a_refused_push_is_one_line_and_keeps_the_folder(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(hub, "create_repo", refuse)
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    path, _ = checkpoint(tmp_path)
    with pytest.raises(RunFailedError, match=r"--push me/digits.*not logged in"):
        make(tmp_path, path, "--push", "me/digits")
    assert (tmp_path / "folder" / "README.md").exists()


@pytest.mark.parametrize("name", ["test_vil_ls", "test_cvt", "test_cst_vil"])
def test_timms_own_push_and_load_keep_a_model(name, tmp_path, monkeypatch):
    hub = Hub(tmp_path)
    monkeypatch.setattr("timm.models._hub.HfApi", hub)
    model = timm.create_model(name, num_classes=7, img_size=40).eval()
    push_to_hf_hub(model, f"me/{name}", safe_serialization=True)
    folder = tmp_path / "me" / name
    assert json.loads((folder / "config.json").read_text())["architecture"] == name
    loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    images = torch.randn(1, 3, 40, 40)
    assert torch.equal(loaded(images), model(images))
