"""Every setting of train.py changes a run, or a test of its own shows what it does."""

import csv
import functools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import runs
import timm
import torch
from PIL import Image, ImageOps

from vit_ls.config import TrainConfig
from vit_ls.data.digits import Digits

TAUGHT = "test_vil_ls --kd-model-path TEACHER"
TOKENS = (
    "--model deit_tiny_distilled_patch16_224 --kd-model-name test_vil_ls --kd-model-path TEACHER"
)
SOUND = (
    "--model test_vil_ls --img-size 16 --epochs 2 --lr-base 1e-3 --lr-base-size 8 --batch-size 8 "
    "--workers 0 --opt adamw --warmup-epochs 0 --device cpu"
)
# A value that must change what a run computes, and the settings beside which it acts.
ACTS = {
    "in_chans": ("1", ""),
    "crop_pct": ("0.5", ""),
    "mean": ("0.1 0.1 0.1", ""),
    "std": ("0.1 0.1 0.1", ""),
    "interpolation": ("nearest", ""),
    "model_kwargs": ("drop_rate=0.5", ""),
    "batch_size": ("4", ""),
    "num_classes": ("5", ""),
    "freeze": ("backbone", ""),
    "grad_accum_steps": ("2", ""),
    "head_init_scale": ("2", ""),
    "head_init_bias": ("1", ""),
    "opt": ("lamb", ""),
    "opt_eps": ("0.1", ""),
    "opt_betas": ("0.5 0.5", ""),
    "momentum": ("0.1", "--opt sgd"),
    "weight_decay": ("5", ""),
    "clip_mode": ("value", "--opt sgd --clip-grad 0.01"),
    "layer_decay": ("0.3", ""),
    "layer_decay_min_scale": ("0.9", "--layer-decay 0.3"),
    "opt_kwargs": ("amsgrad=True betas=(0.1,0.1)", ""),
    "sched": ("step", "--decay-epochs 1"),
    "sched_on_updates": ("", ""),
    "lr": ("1e-2", ""),
    "lr_cycle_limit": ("2", "--epochs 1"),
    "lr_cycle_mul": ("2", "--epochs 2 --lr-cycle-limit 2"),
    "lr_cycle_decay": ("0.1", "--epochs 1 --lr-cycle-limit 2"),
    "lr_k_decay": ("2", ""),
    "lr_decay_fn": ("cosine", "--sched wsd --decay-epochs 2 --epochs 3"),
    "lr_noise": ("0.0", ""),
    "lr_noise_pct": ("0.1", "--lr-noise 0.0"),
    "min_lr": ("5e-4", ""),
    "warmup_epochs": ("1", ""),
    "warmup_prefix": ("", "--warmup-epochs 1"),
    "cooldown_epochs": ("1", ""),
    "decay_milestones": ("1", "--sched multistep --decay-rate 0.5"),
    "decay_epochs": ("1", "--sched step"),
    "decay_rate": ("0.5", "--sched step --decay-epochs 1"),
    "no_aug": ("", ""),
    "train_crop_mode": ("rkrc", ""),
    "scale": ("0.9 1", ""),
    "ratio": ("1 1", ""),
    "hflip": ("0", ""),
    "vflip": ("1", ""),
    "color_jitter": ("0", ""),
    "color_jitter_prob": ("0.1", ""),
    "gaussian_blur_prob": ("1", ""),
    "aa": ("rand-m9", ""),
    "aug_repeats": ("2", ""),
    "aug_splits": ("2", ""),
    "jsd_loss": ("", "--aug-splits 2"),
    "split_bn": ("", "--model test_cvt_ls --resplit --reprob 1"),
    "bce_loss": ("", ""),
    "gp": ("max", "--img-size 64"),
    "img_size": ("24", ""),
    "input_size": ("3 24 24", "--input-size 3 16 16"),
    "crop_mode": ("border", "--crop-pct 0.5"),
    "amp": ("", ""),
    "amp_dtype": ("float16", "--amp"),
    "fast_norm": ("", "--model test_vit2 --img-size 64 --amp"),
    "float32_matmul_precision": ("medium", ""),
    "train_split": ("more", ""),
    "val_split": ("more", ""),
    "clip_grad": ("0.01", "--opt sgd"),
    "log_grad_norm": ("", ""),
    "layer_decay_no_opt_scale": ("0.5", "--layer-decay 0.3"),
    "lr_base": ("1e-2", ""),
    "lr_base_size": ("32", ""),
    "lr_base_scale": ("linear", "--lr-base-size 32"),
    "lr_noise_std": ("0.1", "--lr-noise 0.0"),
    "lr_stable_timescale": ("0.5", "--sched rsqrt --warmup-epochs 1 --decay-epochs 1 --epochs 3"),
    "warmup_lr": ("5e-4", "--warmup-epochs 1"),
    "epochs": ("3", ""),
    "stop_epoch": ("1", ""),
    "start_epoch": ("1", ""),
    "patience_epochs": ("0", "--sched plateau --epochs 4 --lr 1e-7"),
    "grayscale_prob": ("1", ""),
    "bce_sum": ("", "--bce-loss"),
    "bce_target_thresh": ("0.01", "--bce-loss"),
    "bce_pos_weight": ("2", "--bce-loss"),
    "reprob": ("1", ""),
    "remode": ("const", "--reprob 1"),
    "recount": ("3", "--reprob 1"),
    "resplit": ("", "--reprob 1"),
    "mixup": ("0.5", ""),
    "cutmix": ("0.5", ""),
    "cutmix_minmax": ("0.2 0.8", ""),
    "mixup_prob": ("0.1", "--mixup 0.5"),
    "mixup_switch_prob": ("0", "--mixup 0.5 --cutmix 0.5"),
    "mixup_mode": ("elem", "--mixup 0.5"),
    "mixup_off_epoch": ("1", "--mixup 0.5"),
    "smoothing": ("0", ""),
    "train_interpolation": ("nearest", ""),
    "drop": ("0.5", ""),
    "drop_path": ("0.5", ""),
    "drop_block": ("0.5", "--model resnet10t --img-size 96"),
    "bn_momentum": ("0.5", "--model test_efficientnet"),
    "bn_eps": ("0.1", "--model test_efficientnet"),
    "model_ema": ("", ""),
    "model_ema_decay": ("0.1", "--model-ema"),
    "model_ema_warmup": ("NO", "--model-ema"),
    "model_ema_force_cpu": ("", "--model-ema"),
    "initial_checkpoint": ("TEACHER", ""),
    "kd_model_name": (TAUGHT, ""),
    "kd_model_path": ("OTHER", f"--kd-model-name {TAUGHT}"),
    "kd_distill_type": ("feature", f"--kd-model-name {TAUGHT}"),
    "kd_token_distill_type": ("soft", f"{TOKENS} --kd-distill-type token"),
    "kd_temperature": ("1", f"--kd-model-name {TAUGHT}"),
    "distill_loss_weight": ("0.9", f"--kd-model-name {TAUGHT}"),
    "task_loss_weight": ("0.1", f"--kd-model-name {TAUGHT}"),
    "seed": ("1", ""),
    "val_interval": ("2", ""),
}
# Where the others are shown, which name what is read and written, or leave the numbers alone.
ELSEWHERE = {
    "replace_attention": "run/test_replaced.py",
    "attention_kwargs": "run/test_replaced.py",
    "keep_attention": "run/test_replaced.py",
    "data_dir": "data/test_datasets.py",
    "dataset_download": "data/test_datasets.py",
    "dataset_trust_remote_code": "data/test_datasets.py",
    "dataset": "test_validate.py",
    "class_map": "data/test_splits.py",
    "train_num_samples": "data/test_splits.py",
    "val_num_samples": "data/test_splits.py",
    "epoch_repeats": "data/test_splits.py",
    "input_img_mode": "data/test_hostile.py",
    "reduced_decoding": "data/test_reduced.py",
    "max_unreadable": "data/test_hostile.py",
    "input_key": "data/test_readers.py",
    "target_key": "data/test_readers.py",
    "model": "test_train.py",
    "pretrained": "models/test_released.py",
    "pretrained_path": "models/test_released.py",
    "pretrained_cfg_overlay": "models/test_released.py",
    "workers": "train/test_survival.py",
    "validation_batch_size": "train/test_survival.py",
    "recovery_interval": "train/test_survival.py",
    "checkpoint_hist": "train/test_survival.py",
    "save_epochs": "train/test_survival.py",
    "pin_mem": "config/test_reading.py",
    "channels_last": "job/test_ranks.py",
    "dist_bn": "job/test_ranks.py",
    "no_ddp_bb": "job/test_ranks.py",
    "device": "config/test_timm_settings.py",
    "cudnn_benchmark": "config/test_timm_settings.py",
    "device_modules": "config/test_timm_settings.py",
    "kd_loss_type": "config/test_timm_settings.py",
    "kd_student_feature_dim": "config/test_timm_settings.py",
    "kd_teacher_feature_dim": "config/test_timm_settings.py",
    "log_wandb": "config/test_timm_settings.py",
    "wandb_project": "config/test_timm_settings.py",
    "wandb_tags": "config/test_timm_settings.py",
    "wandb_resume_id": "config/test_timm_settings.py",
    "torchcompile": "train/test_finetune.py",
    "torchcompile_mode": "train/test_finetune.py",
    "grad_checkpointing": "train/test_finetune.py",
    "save_images": "train/test_finetune.py",
    "estimate": "estimate/test_cost.py",
    "dist_timeout": "test_signals.py",
    "log_interval": "train/test_reporting.py",
    "profile": "train/test_reporting.py",
    "log_tensorboard": "train/test_reporting.py",
    "resume": "train/test_resume.py",
    "no_resume_opt": "train/test_resume.py",
    "resume_changed": "train/test_resume.py",
    "output": "train/test_resume.py",
    "experiment": "train/test_resume.py",
    "sync_bn": "train/test_gpu.py",
    "eval_metric": "test_settings_act.py",
    "skip_nonfinite": "train/test_failures.py",
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with coloured digits of three kinds, and two files of weights."""
    root = tmp_path_factory.mktemp("images")
    for split, held_out, count in (
        ("train", False, 32),
        ("validation", True, 12),
        ("more", True, 24),
    ):
        for index in range(count):
            grey, label = Digits(held_out=held_out)[index]
            grey = grey.convert("L")
            folder = root / split / str(label % 3)
            folder.mkdir(parents=True, exist_ok=True)
            colours = grey, ImageOps.mirror(grey), ImageOps.invert(grey)
            Image.merge("RGB", colours).resize((12, 8)).save(folder / f"{index}.png")
    for name in ("TEACHER", "OTHER"):
        model = timm.create_model("test_vil_ls", num_classes=3, img_size=16)
        torch.save(model.state_dict(), root / name)
    return root


def _result(images: Path, root: Path, name: str, words: str) -> tuple[int, str, str]:
    """Status, summary and log of a run."""
    for file in ("TEACHER", "OTHER"):
        words = words.replace(file, str(images / file))
    sound = SOUND.replace("--img-size 16 ", "") if "--input-size" in words else SOUND
    argv = [*sound.split(), "--output", str(root), "--experiment", name, *words.split()]
    log = root / f"{name}.log"
    status = runs.finish(["--data-dir", str(images), *argv], log, seconds=600)
    file = root / name / "summary.csv"
    return status, file.read_text() if file.exists() else "", log.read_text()


@pytest.fixture(scope="module")
def plainly(
    images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[int, str, str]]:
    """The run with nothing but some settings, made once."""
    root = tmp_path_factory.mktemp("plain")

    @functools.cache
    def run(beside: str) -> tuple[int, str, str]:
        return _result(images, root, f"plain-{abs(hash(beside))}", beside)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTS)
def test_a_setting_changes_what_a_run_computes(
    name: str, images: Path, tmp_path: Path, plainly: Callable[[str], tuple[int, str, str]]
) -> None:
    value, beside = ACTS[name]
    flag = "--" + name.replace("_", "-")
    told = f"--no-{flag[2:]}" if value == "NO" else f"{flag} {value}"
    plain = plainly(beside)
    changed = _result(images, tmp_path, "changed", f"{beside} {told}")
    assert (plain[0], changed[0]) == (0, 0), plain[2] + changed[2]
    assert f"{flag} has no effect" not in changed[2], changed[2]
    assert plain[1] != changed[1], f"{told} changed nothing"


@pytest.mark.slow
def test_the_metric_decides_which_epoch_is_best(images: Path, tmp_path: Path) -> None:
    best = {}
    for metric, better in (("top1", max), ("loss", min)):
        words = f"--epochs 6 --lr-base 2e-2 --eval-metric {metric}"
        status, summary, log = _result(images, tmp_path, metric, words)
        assert status == 0, log
        rows = list(csv.DictReader(summary.splitlines()))
        values = [float(row[f"eval_{metric}"]) for row in rows]
        best[metric] = values.index(better(values))
        assert f" epoch={best[metric]} " in log.splitlines()[-1]
    assert best["top1"] != best["loss"]  # else this would show nothing


def test_every_setting_is_shown_to_act() -> None:
    assert {one.name for one in fields(TrainConfig)} == ACTS.keys() | ELSEWHERE.keys()
    for name, file in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text()
        flag = name.replace("_", "-")
        assert any(word in text for word in (f"--{flag}", f"--no-{flag}", f"{name}=")), name
