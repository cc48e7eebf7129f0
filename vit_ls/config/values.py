"""Values of settings: from text, YAML or Python's literals into the type that a setting has."""

import ast
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from vit_ls.config.nearest import nearest
from vit_ls.config.rows import ConfigError, rows

_LARGEST = 10**300
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def kind_of(schema: type, name: str) -> tuple[type, type | None, bool]:
    """Of a field: its type, its items' type where it is a list, whether it may be None."""
    hint = get_type_hints(schema)[name]
    optional = isinstance(hint, UnionType) and NoneType in get_args(hint)
    if optional:
        hint = next(part for part in get_args(hint) if part is not NoneType)
    origin = get_origin(hint)
    if origin is list:
        return list, get_args(hint)[0], optional
    return origin or hint, None, optional


def checked(schema: type, name: str, value: Any, where: str) -> Any:
    """`value` in the field's type.

    Args:
        schema: The configuration's class.
        name: The field.
        value: From YAML or a flag; of a dictionary's flag, its list of KEY=VALUE.
        where: How a message names the place.

    Raises:
        ConfigError: It is of another type, or breaks the field's rule.
    """
    kind, item, optional = kind_of(schema, name)
    if optional and value in (None, []):
        return None
    if kind is dict:
        value = mapping(value, where)
    elif kind is list:
        if not isinstance(value, list) or not value:
            raise ConfigError(f"{where} must be a list, got {value!r}.")
        value = [_converted(one, item or str, where) for one in value]
    else:
        value = _converted(value, kind, where)
    if optional and value == "":
        raise ConfigError(f"{where} must not be empty.")
    rule = rows(schema)[name].rule
    if broken := rule.broken_by(value):
        end = nearest(str(value), rule.choices)
        raise ConfigError(f"{where} {broken}, got {value!r}{end}")
    return value


def literal(text: str) -> Any:
    """The value of a Python literal, as timm's scripts read it; other text is itself.

    Differs from timm: `true` and `false` are bools too; it makes texts of them, and both are true.
    `None` is no value; `none` is a text, which some of timm's models take (`pos_embed=none`).
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _converted(value: Any, kind: type, where: str) -> Any:
    """`value` as `kind`; a whole number may be written as 3.0, any number as text."""
    if kind in (int, float) and isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                raise ConfigError(f"{where} must be {_KINDS[kind]}, got {value!r}.") from None
    if kind is int and type(value) is float and value.is_integer():
        return int(value)
    if kind is float and type(value) is int:
        return float(value) if abs(value) < _LARGEST else math.inf
    if type(value) is not kind:
        raise ConfigError(f"{where} must be {_KINDS[kind]}, got {value!r}.")
    return value


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Names and values: of KEY=VALUE words, as flags have them, or of YAML's mapping.

    The one reading of them, for every program.

    Args:
        value: A list of words, or a mapping.
        where: How a message names the place.

    Raises:
        ConfigError: A word has no "=", a key comes twice, or a value is none of YAML's.
    """
    if isinstance(value, list) and all(isinstance(word, str) and "=" in word for word in value):
        pairs = [word.partition("=") for word in value]
        value = {key: literal(text) for key, _, text in pairs}
        if len(value) < len(pairs):
            raise ConfigError(f"{where} must have each key once, got {[key for key, *_ in pairs]}.")
    elif isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        odd = next(word for word in value if "=" not in word)
        raise ConfigError(f"{where} must be KEY=VALUE, got {odd!r}.")
    if not isinstance(value, Mapping) or not all(key and type(key) is str for key in value):
        raise ConfigError(f"{where} must be a mapping, got {value!r}.")
    return {key: _plain(one, f"{where} {key}") for key, one in value.items()}


def _plain(value: Any, where: str) -> Any:
    """A value that YAML and a checkpoint can hold; a text in parentheses is a tuple.

    YAML has no tuples, and some models take nothing else.
    """
    if isinstance(value, str) and value.startswith("("):
        value = literal(value)
    if isinstance(value, dict):
        return {key: _plain(one, where) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(one, where) for one in value)
    if value is not None and not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise ConfigError(f"{where} must be made of numbers, texts, lists and names, got a {kind}.")
    return value
