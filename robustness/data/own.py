"""Benchmarks of one's own: a few lines of YAML instead of a row of the table."""

import re
from pathlib import Path
from typing import Any

from robustness.data.benchmarks import BENCHMARKS, SINGLE, Benchmark, grid
from vit_ls.config import ConfigError, nearest, yaml_entries

_LAYOUTS = ("classes", "cells", "corruptions", "arrays", "unknown")
_NAMINGS = ("wnid", "v2", "sorted")
_RULES = ("plain", "a", "r", "in9")
_PROTOCOLS = ("unchanged", "model")
_KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "folder": str,
    "layout": str,
    "classes": (str, list, int),
    "num_classes": int,
    "rule": str,
    "protocol": str,
    "images": int,
    "image_size": int,
    "corruptions": list,
    "cells": list,
    "severities": int,
}
_NEEDED = ("name", "layout", "classes", "images")
_NAME = re.compile(r"[^\W_][\w.+-]*(?: [\w.+-]+)*")
"""Names are parts of paths: what is written for a benchmark lies under its own."""

_IMAGENET, _NINE = 1000, 9


def read_benchmark(file: Path) -> Benchmark:
    """Read one benchmark.

    Keys: `name`; `folder` under the data root (default: the name); `layout` ("classes", "cells",
    "corruptions", "arrays", or "unknown" for images of no class, whose `num_classes` are the
    model's); `classes` (a list of folder names in the order of the model's classes, "sorted" for
    the order of their names, "wnid" for ImageNet's, or a number for folders or labels 0, 1, ...);
    `num_classes` where it is not the length of the list; `images` of each
    cell; `image_size` where it is fixed; `corruptions` and `severities` (5), or `cells`; `protocol`
    ("unchanged", or "model" for its own resize and crop); `rule` ("plain").

    Raises:
        ConfigError: The file cannot be read, or a key is unknown, missing or of another kind.
    """
    content = {key: value for key, value, _ in yaml_entries(file, "--benchmark")}
    _check(file, content)
    _check_names(file, content)
    row = _row(file, content)
    if row.name in BENCHMARKS:
        raise ConfigError(f"{file}: name is that of a known benchmark, {row.name}.")
    return row


def _check(file: Path, content: dict[Any, Any]) -> None:
    for key, value in content.items():
        if key not in _KEYS:
            raise ConfigError(f"{file} has an unknown key {key}{nearest(str(key), _KEYS)}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise ConfigError(f"{file}: {key} is of another kind: {value!r}.")
        if isinstance(value, int) and value < 1:
            raise ConfigError(f"{file}: {key} must be at least 1, got {value}.")
    unknown = content.get("layout") == "unknown"
    if unknown:
        odd = [key for key in ("classes", "rule", "cells", "corruptions") if key in content]
        if odd:
            raise ConfigError(f"{file}: layout unknown takes no {odd[0]}: its images have none.")
    needed = ("name", "layout", "images", "num_classes") if unknown else _NEEDED
    missing = [key for key in needed if key not in content]
    if missing:
        raise ConfigError(f"{file} lacks {', '.join(missing)}.")
    for key, known in (
        ("layout", _LAYOUTS),
        ("rule", _RULES),
        ("protocol", _PROTOCOLS),
        *([("classes", _NAMINGS)] if isinstance(content.get("classes"), str) else []),
    ):
        if content.get(key, known[0]) not in known:
            raise ConfigError(
                f"{file}: {key} must be one of {', '.join(known)}, got {content[key]}."
            )
    has = {"corruptions": "corruptions", "arrays": "corruptions", "cells": "cells"}
    wanted = {has[content["layout"]]} if content["layout"] in has else set()
    if wanted != content.keys() & {"corruptions", "cells"}:
        raise ConfigError(
            f"{file}: layouts corruptions and arrays need the key corruptions, layout cells needs "
            "the key cells, and no other layout takes them."
        )


def _check_names(file: Path, content: dict[str, Any]) -> None:
    for key in ("name", "corruptions", "cells"):
        given = content.get(key, [])
        names = [str(name) for name in ([given] if isinstance(given, str) else given)]
        for name in names:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{file}: {key} must be of letters, digits, spaces and . _ + -, and begin with "
                    f"a letter or digit, got {name!r}."
                )
        if len(set(names)) < len(names):
            raise ConfigError(f"{file}: {key} has a name twice.")


def _check_rule(file: Path, content: dict[str, Any], count: int) -> None:
    """Whether the benchmark's classes are those that the rule knows."""
    rule, classes = content.get("rule", "plain"), content["classes"]
    if content["layout"] == "arrays" and rule != "plain":
        raise ConfigError(f"{file}: layout arrays goes with rule plain, got {rule}.")
    if rule in ("a", "r") and (classes != "wnid" or count != _IMAGENET):
        raise ConfigError(
            f"{file}: rule {rule} is for 200 of ImageNet's 1000 classes and needs classes: wnid "
            f"without num_classes, got classes: {classes} and {count} of them."
        )
    length = classes if isinstance(classes, int) else len(classes)
    if rule == "in9" and (
        isinstance(classes, str) or length != _NINE or count not in (_NINE, _IMAGENET)
    ):
        raise ConfigError(
            f"{file}: rule in9 needs nine classes, of a model of 9 or (num_classes) 1000, got "
            f"classes: {classes} and num_classes {count}."
        )


def _row(file: Path, content: dict[str, Any]) -> Benchmark:
    if content["layout"] == "unknown":
        return Benchmark(
            content["name"],
            (content.get("folder", content["name"]),),
            "tree",
            "",
            "unknown",
            "unknown",
            content.get("protocol", "unchanged"),
            content["images"],
            image_size=content.get("image_size"),
            num_classes=(content["num_classes"],),
            own=True,
        )
    given = content["classes"]
    if isinstance(given, int):
        given = [str(number) for number in range(given)]
    lengths = {"wnid": 1000, "v2": 1000}
    count = content.get("num_classes") or lengths.get(str(given))
    if isinstance(given, list):
        given = tuple(str(name) for name in given)
        count = count or len(given)
        if len(set(given)) < len(given):
            raise ConfigError(f"{file}: classes has a name twice.")
    if count is None:
        raise ConfigError(f"{file} lacks num_classes, which classes: {given} needs.")
    least = lengths.get(given, 1) if isinstance(given, str) else len(given)
    if count < least:
        raise ConfigError(f"{file}: num_classes must be at least the {least} classes, got {count}.")
    _check_rule(file, content, count)
    rule = content.get("rule", "plain")
    if rule in ("a", "r"):
        given = rule  # A folder of another class is then named, and not judged.
    corruptions = [str(name) for name in content.get("corruptions", ())]
    cells = tuple(str(name) for name in content.get("cells", ())) or SINGLE
    if corruptions:
        cells = grid(corruptions, range(1, content.get("severities", 5) + 1))
    return Benchmark(
        content["name"],
        (content.get("folder", content["name"]),),
        content["layout"],
        given,
        rule,
        "mean_error" if corruptions else "accuracy",
        content.get("protocol", "unchanged"),
        content["images"],
        cells,
        image_size=content.get("image_size"),
        num_classes=(count,),
        own=True,
    )
