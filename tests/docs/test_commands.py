"""The commands of the pages are spelt as their programs read them."""

import argparse
import configparser
import importlib
import re
import shlex
import sys
from itertools import dropwhile

import pytest
from documents import PAGES, ROOT, blocks_of

_PYTHON = re.compile(r"`(python [^`]+)`")


def commands():
    """The lines of the plain blocks, and what stands between backticks and begins with python."""
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "":
                for line in block.code.replace("\\\n", " ").splitlines():
                    for part in line.split("&&"):
                        yield part.partition("  #")[0].strip()
        yield from _PYTHON.findall(PAGES[page])


_SETTING = re.compile(r"[A-Z_]+=\S*")  # of the environment, before a command
COMMANDS = sorted({command for command in commands() if command})


class ParsedError(BaseException):
    """Raised in place of running a program, once it has read its arguments."""


def program_of(words):
    """Name of the module and its arguments, where a command runs Python."""
    if words[0] == "torchrun":  # with flags of its own before the program
        words = list(dropwhile(lambda word: word != "-m" and not word.endswith(".py"), words))
    elif words[0] == "python" and not words[1].startswith(".ci/"):
        words = words[1:]
    else:
        return None
    if words[0] == "-m":
        return words[1], words[2:]
    return words[0].removesuffix(".py").replace("/", "."), words[1:]


@pytest.fixture
def parse_only(monkeypatch):
    def parsing(parse):
        def parse_and_stop(self, args=None, namespace=None):
            known = parse(self, args, namespace)
            unknown = known[1] if isinstance(known, tuple) else []
            assert not unknown, unknown
            raise ParsedError

        return parse_and_stop

    # parse_args calls the other
    known = argparse.ArgumentParser.parse_known_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parsing(known))


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one(command, monkeypatch):
    words = list(dropwhile(_SETTING.fullmatch, shlex.split(command)))
    program = program_of(words)
    if program is None:
        check_tool(words)
        return
    name, arguments = program
    if name == "build":
        return
    path = ROOT / name.replace(".", "/")
    if path.is_dir():
        path /= "cli.py" if (path / "cli.py").exists() else "__main__.py"
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    source = path.with_suffix(".py").read_text(encoding="utf-8")
    if arguments:  # without any, a page only mentions the program
        assert "Parser(" in source, "it takes no arguments"
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(ParsedError):
            importlib.import_module(name).main()


def check_tool(words):
    """A tool that is no program of ours: what it is pointed at exists."""
    tool = words[0]
    if tool == "pip":
        parser = configparser.ConfigParser()
        parser.read(ROOT / "setup.cfg")
        (extras,) = re.findall(r"\.\[([\w,]+)\]", words[-1])
        assert set(extras.split(",")) <= set(parser["options.extras_require"])
    elif tool == "pytest":
        marks = ("slow", "not slow", "landing")
        for word in words[1:]:
            assert word[0] == "-" or word in marks or (ROOT / word).exists(), word
    elif tool == "sbatch":
        assert all((ROOT / word).exists() for word in words[1:3])
    elif tool == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    elif tool.startswith(".ci/"):
        assert (ROOT / tool).stat().st_mode & 0o100
    else:
        assert tool in ("mkdocs", "pre-commit"), tool
