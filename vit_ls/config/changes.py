"""What may change where a run is continued: a resumed run is the same run."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from vit_ls.config.rows import ConfigError, Never, Resume, rows
from vit_ls.config.training import TrainConfig


class Change(NamedTuple):
    """A setting that differs from that of the run so far."""

    name: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"--{self.name.replace('_', '-')} {self.was!r} -> {self.now!r}"


def checked_changes(was: Mapping[str, Any], now: TrainConfig) -> list[Change]:
    """What has changed since a run was saved.

    Args:
        was: The settings stored with it; one that it does not know yet had its default.
        now: The settings to continue it with.

    Raises:
        ConfigError: Something has changed that makes it another run and is not allowed to.
    """
    changes, about = _changes(was, now), rows(type(now))
    for one in changes:
        resume = about[one.name].resume
        why = resume.why if isinstance(resume, Never) else None
        if one.name == "opt" and not now.no_resume_opt:
            why = "the optimiser's state is of the other one (--no-resume-opt starts it anew)"
        if why is not None:
            raise ConfigError(f"--resume: {one} cannot change in a run: {why}.")
    other = [str(one) for one in changes if about[one.name].resume is not Resume.FREE]
    if other and not now.resume_changed:
        raise ConfigError(
            f"--resume: {', '.join(other)} would make it another run; --resume-changed allows that."
        )
    return changes


def former(was: Mapping[str, Any], schema: type[TrainConfig] = TrainConfig) -> TrainConfig:
    """The configuration of a stored run, as far as `schema` knows it."""
    known = {one.name for one in fields(schema)}
    return schema(**{name: value for name, value in was.items() if name in known})


def _changes(was: Mapping[str, Any], now: TrainConfig) -> list[Change]:
    before, after, about = asdict(former(was, type(now))), asdict(now), rows(type(now))
    return [
        Change(name, before[name], value)
        for name, value in after.items()
        if about[name].resume is not Resume.START and before[name] != value
    ]
