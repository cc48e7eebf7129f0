"""The README's section on export, as a reader would run it."""

import shlex

from readme import blocks

from vit_ls.export import main


def test_the_command_of_the_readme_is_one(monkeypatch, tmp_path, capsys):
    # what it writes is tested beside this; here, that the command is spelt as it is
    monkeypatch.setattr("vit_ls.export.find_spec", lambda _name: object())
    monkeypatch.setattr("vit_ls.export.write_onnx", lambda model, *_: lambda x: [model(x)])
    monkeypatch.chdir(tmp_path)
    (command,) = [line for line in blocks("Export", "")[0].splitlines() if "vit_ls" in line]
    python, _m, module, *arguments = shlex.split(command)
    assert (python, module) == ("python", "vit_ls.export")
    main(arguments)
    assert capsys.readouterr().out.startswith("model.onnx: agrees with PyTorch")


def test_the_snippet_of_the_readme_runs():
    (code,) = blocks("Export")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
