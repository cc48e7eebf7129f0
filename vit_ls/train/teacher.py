"""The teacher of a distillation: built as its run built it, and of the student's classes."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.run.building import check_model_name, create, made
from vit_ls.run.classes import difference
from vit_ls.run.files import check_weights_file
from vit_ls.run.loading import built_from, named_by
from vit_ls.run.rebuilding import as_trained, channels
from vit_ls.run.weights import class_names, run_settings

_FLAG = "--kd-model-path"


def make_teacher(
    factory: Callable[..., nn.Module],
    config: TrainConfig,
    *,
    classes: Mapping[str, int] | None = None,
) -> Any:
    """The teacher of a distillation, made by timm's factory, or None.

    Args:
        factory: timm's `create_model`.
        config: The settings of the student's run.
        classes: Of the data, where it has names for them.

    Raises:
        ConfigError: The factory, or the model, refuses the arguments; or the teacher's classes or
            channels are not the student's, which would leave it a random part.
    """
    name = config.kd_model_name
    if not name:
        return None
    check_model_name(name, "--kd-model-name")
    if not config.kd_model_path:
        teacher = made(name, lambda: factory(name, pretrained=True, **_channels(config)))
        _check_number(teacher.pretrained_cfg.get("num_classes"), config, f"--kd-model-name {name}")
        return teacher
    path = Path(config.kd_model_path)
    check_weights_file(_FLAG, path)
    settings = run_settings(path)
    if settings:
        _check_run(settings, config, path)
    _check_names(class_names(path), classes, config, path)
    trained = as_trained(path, name, file_flag=_FLAG, flag="--kd-model-name")
    kwargs = _channels(config) | {"num_classes": config.num_classes} | trained
    # timm leaves a classifier out, and random, where the file's is said to have other classes.
    kept = bool(trained) or _distils_classes(config)
    overlay = trained.get("pretrained_cfg_overlay", {}) | {
        "num_classes": kwargs["num_classes"] if kept else -1,
    }
    with named_by(_FLAG):
        return made(
            name, lambda: built_from(partial(create, factory, name, **kwargs), path, overlay)
        )


def _channels(config: TrainConfig) -> dict[str, Any]:
    found = channels(vars(config))
    return {"in_chans": found} if found else {}


def _check_run(settings: Mapping[str, Any], config: TrainConfig, path: Path) -> None:
    """Raise ConfigError where the run that wrote a file had other channels or classes."""
    theirs, ours = channels(settings) or 3, channels(vars(config)) or 3
    if theirs != ours:
        raise ConfigError(
            f"{_FLAG} {path}: the teacher takes images of {theirs} channels, and the student's "
            f"have {ours}."
        )
    _check_number(settings.get("num_classes"), config, f"{_FLAG} {path}")


def _check_number(found: int | None, config: TrainConfig, what: str) -> None:
    """Raise ConfigError where a classifier that is distilled has other classes than the data."""
    if found is not None and found != config.num_classes and _distils_classes(config):
        raise ConfigError(
            f"{what}: the teacher has {found} classes and the student {config.num_classes}; "
            "only --kd-distill-type feature can do with other classes."
        )


def _check_names(
    theirs: Mapping[str, int] | None,
    ours: Mapping[str, int] | None,
    config: TrainConfig,
    path: Path,
) -> None:
    """Raise ConfigError where the classes are others, or in another order."""
    if theirs and ours and dict(theirs) != dict(ours) and _distils_classes(config):
        raise ConfigError(
            f"{_FLAG} {path}: the teacher's classes are not those of the data: "
            f"{difference(theirs, ours)}; only --kd-distill-type feature can do with other classes."
        )


def _distils_classes(config: TrainConfig) -> bool:
    return config.kd_distill_type != "feature"
