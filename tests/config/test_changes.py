"""What may change where a run is continued."""

from dataclasses import asdict, replace

import pytest

from vit_ls.config import ConfigError, TrainConfig, checked_changes
from vit_ls.config.rows import Never, rows

NEVER = [name for name, row in rows(TrainConfig).items() if isinstance(row.resume, Never)]


def test_nothing_changes_by_starting_otherwise() -> None:
    was = TrainConfig()
    now = replace(was, resume="auto", experiment="run", output="elsewhere")
    assert checked_changes(asdict(was), now) == []


def test_a_setting_that_an_older_run_does_not_know_had_its_default() -> None:
    was = asdict(TrainConfig())
    del was["reprob"]
    was["gone"] = 1
    assert checked_changes(was, TrainConfig()) == []
    with pytest.raises(ConfigError, match=r"--reprob 0.0 -> 0.5 would make it another run"):
        checked_changes(was, TrainConfig(reprob=0.5))


@pytest.mark.parametrize("name", NEVER)
def test_what_cannot_take_effect_is_refused_even_where_changes_are_allowed(name: str) -> None:
    was = asdict(TrainConfig()) | {name: "another"}
    flag = name.replace("_", "-")
    with pytest.raises(ConfigError, match=f"--{flag} 'another' -> .* cannot change in a run: "):
        checked_changes(was, TrainConfig(resume_changed=True))


def test_a_change_is_shown_as_it_was_and_is() -> None:
    was, now = TrainConfig(lr=0.1, workers=4), TrainConfig(lr=0.2, workers=0)
    shown = [str(one) for one in checked_changes(asdict(was), now)]
    assert shown == ["--workers 4 -> 0", "--lr 0.1 -> 0.2"]
