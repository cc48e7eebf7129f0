"""The README's section on export, as a reader would run it."""

import shlex

import pytest
from readme import blocks

from vit_ls.export import main


def test_the_command_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra export")
    monkeypatch.chdir(tmp_path)
    (command,) = [line for line in blocks("Export", "")[0].splitlines() if "vit_ls" in line]
    python, _m, module, *arguments = shlex.split(command)
    assert (python, module) == ("python", "vit_ls.export")
    main(arguments)
    assert "agrees with PyTorch" in capsys.readouterr().out
    assert (tmp_path / "model.onnx").is_file()


def test_the_snippet_of_the_readme_runs():
    (code,) = blocks("Export")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
