"""A YAML file and flags become one typed configuration: flags win over the file."""

import argparse
import difflib
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import yaml

from vit_ls.config.schema import (
    HARMLESS,
    HARMLESS_WITH_VALUE,
    INHERITED,
    LEFT_OUT,
    ConfigError,
    DataConfig,
    Rule,
    ValidateConfig,
)

_logger = logging.getLogger(__name__)
_Schema = TypeVar("_Schema", bound=DataConfig)
_LARGEST = 10**300
_SIZES = ("img_size", "input_size")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class Parser(argparse.ArgumentParser):
    """Flags made from a schema; a mistake ends the program with one line and status 2."""

    def __init__(self, schema: type[DataConfig], prog: str, description: str) -> None:
        super().__init__(prog, description=description, argument_default=argparse.SUPPRESS)
        self.schema = schema
        self.add_argument("data", nargs="?", metavar="DIR", help="same as --data-dir")
        self.add_argument("-c", "--config", metavar="FILE", help="YAML file with settings")
        for one in fields(schema):
            self._add_field(one.name, one.metadata)
        self.flags = [f"--{one.name.replace('_', '-')}" for one in fields(schema)]
        self._add_timm_flags()

    def _add_field(self, name: str, about: Mapping[str, Any]) -> None:
        kind, item, _ = _kind(self.schema, name)
        flags = ["--" + name.replace("_", "-"), *about["also"].split()]
        help_text = about["help"].replace("%", "%%")
        if kind is bool and name.startswith("no_"):
            self.add_argument(*flags, dest=name, action="store_true", help=help_text)
            off = "--" + name.removeprefix("no_").replace("_", "-")
            self.add_argument(off, dest=name, action="store_false", help=argparse.SUPPRESS)
        elif kind is bool:
            self.add_argument(
                *flags, dest=name, action=argparse.BooleanOptionalAction, help=help_text
            )
        else:
            nargs = "+" if kind in (list, dict) else "?" if about["alone"] else None
            metavar = "KEY=VALUE" if kind is dict else (item or kind).__name__.upper()
            self.add_argument(
                *flags,
                dest=name,
                nargs=nargs,
                const=about["alone"],
                metavar=metavar,
                help=help_text,
            )

    def _add_timm_flags(self) -> None:
        hidden = argparse.SUPPRESS
        for name in {**HARMLESS, **LEFT_OUT}:
            spellings = {f"--{name}", f"--{name.replace('_', '-')}"}
            if name in HARMLESS and name not in HARMLESS_WITH_VALUE:
                self.add_argument(*spellings, dest=name, action="store_true", help=hidden)
            else:
                count = None if name in HARMLESS else "*"
                self.add_argument(*spellings, dest=name, nargs=count, help=hidden)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, without the usage of some hundred flags."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")


def read(
    parser: Parser,
    schema: type[_Schema],
    argv: Sequence[str] | None,
    *,
    fallback: Path | None = None,
) -> tuple[_Schema, set[str]]:
    """The configuration of a command line, and the names that were set by file or flag.

    Args:
        parser: Made from `schema`.
        schema: The configuration's class.
        argv: The flags; None takes the program's own.
        fallback: The file to read where neither a file nor data is named.

    Raises:
        ConfigError: Something is unknown, of the wrong type or out of range.
    """
    given = _given(parser, argv)
    file = given.pop("config", None)
    if file is None and not {"data_dir", "dataset"} & given.keys():
        file = fallback
    values = _file_values(schema, Path(file)) if file is not None else {}
    for name, value in given.items():
        values[name] = _checked(schema, name, value, "--" + name.replace("_", "-"), from_flag=True)
    return schema(**values), set(values)


def inherit(config: ValidateConfig, given: set[str], run: dict[str, Any]) -> ValidateConfig:
    """An evaluation's configuration, completed from that of the training run.

    Args:
        config: What was given, and defaults.
        given: The names of what was given.
        run: The settings of the run.
    """
    run = {
        **run,
        "split": run.get("val_split"),
        "batch_size": run.get("validation_batch_size") or run.get("batch_size"),
    }
    given = given | (set(_SIZES) if given & set(_SIZES) else set())
    names = [name for name in INHERITED if name not in given and run.get(name) is not None]
    return replace(config, **{name: run[name] for name in names})


def dump(config: DataConfig) -> str:
    """The whole configuration as YAML that `read` takes back."""
    return str(yaml.safe_dump(asdict(config), sort_keys=False))


def _given(parser: Parser, argv: Sequence[str] | None) -> dict[str, Any]:
    """The flags of a command line; those of timm's that are left out are refused or reported."""
    known, unknown = parser.parse_known_args(argv)
    if unknown and not unknown[0].startswith("-"):
        raise ConfigError(f"unexpected argument {unknown[0]!r}.")
    if unknown:
        word = unknown[0].partition("=")[0]
        raise ConfigError(f"unknown flag {word!r}{nearest(word, parser.flags)}")
    given = vars(known)
    for name in given.keys() & LEFT_OUT.keys():
        raise ConfigError(f"--{name.replace('_', '-')} is left out: {LEFT_OUT[name]}.")
    for name in given.keys() & HARMLESS.keys():
        _logger.warning("--%s has no effect: %s.", name.replace("_", "-"), HARMLESS[name])
        del given[name]
    if "data" in given:
        given.setdefault("data_dir", given.pop("data"))
    return given


def _file_values(schema: type[DataConfig], file: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known = {one.name for one in fields(schema)}
    for name, value, line in _entries(file):
        where = f"{file}:{line}: {name}"
        if name in values:
            raise ConfigError(f"{where} is set twice.")
        if name in HARMLESS or (name in LEFT_OUT and not value):
            continue
        if name in LEFT_OUT:
            raise ConfigError(f"{where} is left out: {LEFT_OUT[name]}.")
        if name not in known:
            raise ConfigError(f"{file}:{line}: unknown key {name!r}{nearest(name, known)}")
        values[name] = _checked(schema, name, value, where, from_flag=False)
    return values


def _entries(file: Path) -> Iterable[tuple[str, Any, int]]:
    """Key, value and line of each entry of a YAML mapping."""
    try:
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        if root is None:
            return []
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{file}:1: must hold 'key: value' lines.")
        return [
            (str(key.value), loader.construct_object(value, deep=True), key.start_mark.line + 1)
            for key, value in root.value
        ]
    except OSError as error:
        raise ConfigError(f"--config {file}: {error.strerror}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not text"
        raise ConfigError(f"{file}{line}: not valid YAML: {problem}.") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid YAML: {error}.") from error


def _kind(schema: type[DataConfig], name: str) -> tuple[type, type | None, bool]:
    """Of a field: its type, its items' type where it is a list, whether it may be None."""
    hint = get_type_hints(schema)[name]
    optional = isinstance(hint, UnionType) and NoneType in get_args(hint)
    if optional:
        hint = next(part for part in get_args(hint) if part is not NoneType)
    origin = get_origin(hint)
    if origin is list:
        return list, get_args(hint)[0], optional
    return origin or hint, None, optional


def _checked(
    schema: type[DataConfig], name: str, value: Any, where: str, *, from_flag: bool
) -> Any:
    """`value` in the field's type, or a ConfigError that says where it came from."""
    kind, item, optional = _kind(schema, name)
    if value is None and optional:
        return None
    if kind is dict:
        value = _pairs(value, where) if from_flag else value
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise ConfigError(f"{where} must be a mapping, got {value!r}.")
    elif kind is list:
        if not isinstance(value, list) or not value:
            raise ConfigError(f"{where} must be a list, got {value!r}.")
        value = [_converted(one, item or str, where) for one in value]
    else:
        value = _converted(value, kind, where)
    rule: Rule = next(one.metadata["rule"] for one in fields(schema) if one.name == name)
    if broken := rule.broken_by(value):
        end = nearest(str(value), rule.choices)
        raise ConfigError(f"{where} {broken}, got {value!r}{end}")
    return value


def _converted(value: Any, kind: type, where: str) -> Any:
    """`value` as `kind`; numbers may be written as text, as YAML reads 3e-4."""
    if kind in (int, float) and isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            raise ConfigError(f"{where} must be {_KINDS[kind]}, got {value!r}.") from None
    if kind is float and type(value) is int:
        return float(value) if abs(value) < _LARGEST else math.inf
    if type(value) is not kind:
        raise ConfigError(f"{where} must be {_KINDS[kind]}, got {value!r}.")
    return value


def _pairs(words: list[str], where: str) -> dict[str, Any]:
    pairs = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{where} must be KEY=VALUE, got {word!r}.")
        try:
            pairs[key] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError):
            raise ConfigError(f"{where} {key}={text!r} cannot be read.") from None
    return pairs


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error: '; did you mean X?' where something is close, else a full stop."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "."
