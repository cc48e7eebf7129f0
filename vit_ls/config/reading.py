"""A YAML file and flags become one typed configuration: flags win over the file."""

import argparse
import inspect
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from vit_ls.config.foreign import ABSENT
from vit_ls.config.nearest import nearest
from vit_ls.config.rows import ConfigError, Row, idle, rows
from vit_ls.config.shared import DataConfig
from vit_ls.config.training import TrainConfig
from vit_ls.config.validation import ValidateConfig
from vit_ls.config.values import checked, kind_of, literal

_logger = logging.getLogger(__name__)
_Schema = TypeVar("_Schema", bound=DataConfig)
_SIZES = ("img_size", "input_size")
# An empty one on a command line is a variable that was not set; a file may hold timm's default.
_FILES = ("data_dir", "class_map", "initial_checkpoint", "checkpoint", "resume")


def _groups(schema: type[DataConfig]) -> Iterator[tuple[str, list[str]]]:
    """What belongs together among the settings, the program's own and common ones first."""
    for part in (schema, *reversed(schema.__mro__[1:])):
        names = [name for name in inspect.get_annotations(part) if name in rows(schema)]
        if names:
            title = (part.__doc__ or part.__name__).partition("\n")[0].rstrip(".")
            yield title, names


class Parser(argparse.ArgumentParser):
    """Flags made from a schema; a mistake ends the program with one line and status 2."""

    def __init__(self, schema: type[DataConfig], prog: str, description: str) -> None:
        usage = f"{prog} [DIR] [-c FILE] [--FLAG VALUE ...]"
        super().__init__(prog, usage, description=description, argument_default=argparse.SUPPRESS)
        self.schema = schema
        self.add_argument("data", nargs="?", metavar="DIR", help="same as --data-dir")
        self.add_argument("-c", "--config", metavar="FILE", help="YAML file with settings")
        about = rows(schema)
        for title, names in _groups(schema):
            group = self.add_argument_group(title)
            for name in names:
                self._add_field(group, name, about[name])
        self.flags = [_flag(name) for name in about]
        self._add_timm_flags()

    def _add_field(self, group: Any, name: str, about: Row) -> None:
        kind, item, _ = kind_of(self.schema, name)
        flags = [_flag(name), *about.also.split()]
        help_text = about.help.replace("%", "%%")
        if kind is bool and name.startswith("no_"):
            group.add_argument(*flags, dest=name, action="store_true", help=help_text)
            off = _flag(name.removeprefix("no_"))
            group.add_argument(off, dest=name, action="store_false", help=argparse.SUPPRESS)
        elif kind is bool:
            group.add_argument(
                *flags, dest=name, action=argparse.BooleanOptionalAction, help=help_text
            )
        else:
            nargs = "+" if kind in (list, dict) else "?" if about.alone else None
            metavar = "KEY=VALUE" if kind is dict else (item or kind).__name__.upper()
            group.add_argument(
                *flags,
                dest=name,
                nargs=nargs,
                const=about.alone,
                metavar=metavar,
                help=help_text,
            )
        for flag, value in about.short.items():
            text = f"the same as {_flag(name)} {value}"
            group.add_argument(flag, dest=name, action="store_const", const=value, help=text)

    def _add_timm_flags(self) -> None:
        hidden = argparse.SUPPRESS
        own = {one.name for one in fields(self.schema)}
        for name, absent in ABSENT.items():
            if name in own:
                continue
            spellings = {f"--{name}", _flag(name)}
            if absent.bare:
                self.add_argument(*spellings, dest=name, action="store_true", help=hidden)
            else:
                count = "+" if absent.many else None
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
        if value == "" and name in _FILES:
            raise ConfigError(f"{_flag(name)} must not be empty.")
        values[name] = checked(schema, name, value, _flag(name))
    config = schema(**values)
    if isinstance(config, TrainConfig):
        for name, needs in idle(config):
            _logger.warning("%s has no effect: it needs %s.", _flag(name), needs)
    return config, set(values)


def inherit(config: ValidateConfig, given: set[str], run: dict[str, Any]) -> ValidateConfig:
    """An evaluation's configuration, completed from that of the training run.

    Args:
        config: What was given, and defaults.
        given: The names of what was given.
        run: The settings of the run.
    """
    run = {
        **run,
        "split": run.get("val_split") or None,  # '' is a run without evaluation
        "batch_size": run.get("validation_batch_size") or run.get("batch_size"),
    }
    given = given | (set(_SIZES) if given & set(_SIZES) else set())
    names = [
        name
        for name, row in rows(ValidateConfig).items()
        if row.inherited and name not in given and run.get(name) is not None
    ]
    return replace(config, **{name: run[name] for name in names})


def dump(config: DataConfig) -> str:
    """The whole configuration as YAML that `read` takes back."""
    return str(yaml.dump(asdict(config), Dumper=_Dumper, sort_keys=False))


class _Dumper(yaml.SafeDumper):
    """Writes a tuple as the text that is read back as one."""


_Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_str(repr(value)))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _given(parser: Parser, argv: Sequence[str] | None) -> dict[str, Any]:
    """The flags of a command line; those of timm's that are left out are refused or reported."""
    known, unknown = parser.parse_known_args(argv)
    if unknown and not unknown[0].startswith("-"):
        raise ConfigError(f"unexpected argument {unknown[0]!r}.")
    if unknown:
        word = unknown[0].partition("=")[0]
        raise ConfigError(f"unknown flag {word!r}{_meant(word, parser.schema)}")
    given = vars(known)
    own = {one.name for one in fields(parser.schema)}
    for name in given.keys() & ABSENT.keys() - own:
        value = given.pop(name)
        if isinstance(value, str):
            value = literal(value)
        elif isinstance(value, list):
            value = [literal(word) for word in value]
        _drop(name, value, _flag(name))
    if "data" in given:
        given.setdefault("data_dir", given.pop("data"))
    return given


def _drop(name: str, value: Any, where: str) -> None:
    """Warn of a setting of timm's that is left out, or refuse it where that would be missed."""
    why, default = ABSENT[name].why, ABSENT[name].default
    if not ABSENT[name].idle and not _same(value, default):
        raise ConfigError(f"{where} is left out: {why}.")
    _logger.warning("%s has no effect: %s.", where, why)


def _same(value: Any, default: Any) -> bool:
    """Whether a value is timm's default; 0 is not false here, and nothing is the same as empty."""
    if not value and not default:
        return type(value) is type(default) or None in (value, default)
    return bool(value == default)


def _file_values(schema: type[DataConfig], file: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known = rows(schema)
    absent = ABSENT.keys() - known.keys()
    stands_for = {row.timm: name for name, row in known.items() if row.timm}
    dropped = []
    for name, value, line in yaml_entries(file):
        where = f"{file}:{line}: {name}"
        if name in stands_for:
            target = stands_for[name]
            if value and not values.get(target):
                values[target] = checked(schema, target, value, where)
        elif name in absent and _same(value, ABSENT[name].default):
            dropped.append(name)
        elif name in absent:
            _drop(name, value, where)
        elif name not in known:
            raise ConfigError(f"{file}:{line}: unknown key {name!r}{_meant(name, schema)}")
        elif value != known[name].timm_unset and (value or not values.get(name)):
            values[name] = checked(schema, name, value, where)
    if dropped:
        _logger.warning(
            "%s: left out here, and at timm's defaults there: %s.", file, ", ".join(dropped)
        )
    return values


def _meant(word: str, schema: type[DataConfig]) -> str:
    """The end of an error about an unknown name, with the one that was probably meant."""
    known = rows(schema)
    bare = word.lstrip("-").replace("-", "_")
    name = next((name for name, row in known.items() if bare in row.known_as.split()), None)
    spelled = _flag if word.startswith("-") else str
    if name is not None:
        return f"; did you mean {spelled(name)!r}?"
    return nearest(word, map(spelled, known))


class _Loader(yaml.SafeLoader):
    """Reads 1e-6 as a number, as YAML 1.2 does; in PyYAML's 1.1 it is a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def yaml_entries(file: Path, flag: str = "--config") -> list[tuple[str, Any, int]]:
    """Key, value and line of each entry of a YAML mapping, each key once.

    Args:
        file: The file.
        flag: Names it in an error.

    Raises:
        ConfigError: It cannot be read, is no mapping, or has a key twice.
    """
    entries = _entries(file, flag)
    keys = [key for key, *_ in entries]
    for number, (key, _, line) in enumerate(entries):
        if key in keys[:number]:
            raise ConfigError(f"{file}:{line}: {key} is set twice.")
    return entries


def _entries(file: Path, flag: str) -> list[tuple[str, Any, int]]:
    try:
        loader = _Loader(file.read_text(encoding="utf-8"))
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
        raise ConfigError(f"{flag} {file}: {error.strerror}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not text"
        raise ConfigError(f"{file}{line}: not valid YAML: {problem}.") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid YAML: {error}.") from error
