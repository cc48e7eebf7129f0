"""What ends a program: one line for what comes from outside, a traceback for a defect."""

from pathlib import Path

import pytest

from vit_ls import job
from vit_ls.config import ConfigError
from vit_ls.errors import blamed_on


def test_what_the_system_refuses_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = job.command_line("train.py", lambda: (tmp_path / "no").joinpath("f").touch())
    line = capsys.readouterr().err
    assert status == 1
    assert line == f"train.py: [Errno 2] No such file or directory: '{tmp_path}/no/f'\n"


def test_a_defect_keeps_its_traceback() -> None:
    def main() -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        job.command_line("train.py", main)


def test_what_others_code_raises_is_put_down_to_its_cause() -> None:
    with (
        pytest.raises(ConfigError, match=r"^model x cannot be built: two lines$"),
        blamed_on("model x cannot be built", ConfigError),
    ):
        raise AttributeError("two\n lines")
    with (
        pytest.raises(ConfigError, match=r"^its own$"),
        blamed_on("not this", ConfigError),
    ):
        raise ConfigError("its own")
    with (
        pytest.raises(ConfigError, match=r"^what: StopIteration$"),
        blamed_on("what", ConfigError),
    ):
        raise StopIteration
