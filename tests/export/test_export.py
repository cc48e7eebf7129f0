import pytest
import timm
import torch
from families import CUT, SMALL

from vit_ls import job
from vit_ls.config import ConfigError
from vit_ls.errors import MissingPackageError
from vit_ls.export import (
    Images,
    cosine,
    difference,
    main,
    smallest_size,
    to_program,
    write_compiled,
    write_int8,
    write_onnx,
    write_openvino,
)

SIZE = (64, 64)
OTHERS = [(1, 3, 64, 64), (3, 3, 64, 96), (2, 3, 75, 49), (1, 3, 33, 120)]
"""Divisible by every window, and by none; other shapes than the one traced."""
OF_PARTS_TRIED = ("test_cvt", "test_vil")
"""Models made of operations that another one brings to ONNX already."""


@pytest.fixture
def onnx():
    """Skip where ONNX is not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="needs the extra export")


def create(name, **kwargs):
    return timm.create_model(name, **kwargs).eval()


def inputs(shapes=OTHERS):
    return [torch.randn(shape) for shape in shapes]


@pytest.mark.landing
@pytest.mark.parametrize("name", SMALL)
def test_a_program_takes_any_batch_and_size(name):
    model = create(name)
    program = to_program(model, Images(3, SIZE))
    least = 35 if name in CUT else 33  # keys of two windows, or two strided keys, on each axis
    assert max(smallest_size(program)) <= least
    module = program.module()
    images = inputs([(*batch, max(height, least), width) for *batch, height, width in OTHERS])
    assert difference(lambda x: [module(x)], model, images) < 1e-5


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in OF_PARTS_TRIED else pytest.mark.landing)
        for n in SMALL
    ],
)
@pytest.mark.usefixtures("onnx")
def test_onnx_agrees_in_onnxruntime_at_any_batch_and_size(name, tmp_path):
    model = create(name)
    run = write_onnx(model, Images(3, SIZE), tmp_path / "model.onnx")
    assert difference(run, model, inputs()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.usefixtures("onnx")
def test_openvino_agrees_at_any_batch_and_size(name, tmp_path):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    model = create(name)
    run = write_openvino(model, Images(3, SIZE), tmp_path / "model.xml")
    assert difference(run, model, inputs()) < 1e-4
    assert {path.suffix for path in tmp_path.iterdir()} == {".xml", ".bin"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.usefixtures("onnx")
def test_weights_of_8_bits_are_smaller_run_and_point_the_same_way(name, tmp_path):
    torch.manual_seed(0)
    model = create(name)
    run = write_int8(model, Images(3, SIZE), tmp_path / "int8.onnx")
    write_onnx(model, Images(3, SIZE), tmp_path / "float32.onnx")
    assert 0.98 < cosine(run, model, inputs()) < 1
    size, before = ((tmp_path / f"{n}.onnx").stat().st_size for n in ("int8", "float32"))
    assert size < 0.4 * before  # four times smaller but for convolutions and the graph itself


def test_a_cosine_is_the_least_and_below_any_limit_where_outputs_are_not_finite():
    model, x = create("test_vil_ls"), inputs(OTHERS[:2])
    assert cosine(lambda y: [model(y)], model, x) == pytest.approx(1)
    turned = [model(x[0]), -model(x[1])]
    assert cosine(lambda y: [turned[len(y) // 3]], model, x) == pytest.approx(-1)
    assert cosine(lambda y: [model(y) * torch.nan], model, x) == -1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("any_size", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_a_compiled_package_agrees_at_any_batch(name, any_size, tmp_path):
    model = create(name)
    run = write_compiled(model, Images(3, SIZE, any_size), tmp_path / "model.pt2")
    assert difference(run, model, inputs() if any_size else inputs(OTHERS[:1])) < 1e-4


def test_a_size_below_the_smallest_is_an_error_that_names_both(monkeypatch):
    monkeypatch.setattr("vit_ls.export.smallest_size", lambda _program: (33, 33))
    with pytest.raises(ConfigError, match=r"at least \(33, 33\).*got \(32, 64\).*--static-size"):
        to_program(torch.nn.Conv2d(3, 4, 3).eval(), Images(3, (32, 64)))


def test_a_difference_is_seen_and_another_shape_is_an_error():
    model, x = create("test_vil_ls"), inputs(OTHERS[:1])
    assert difference(lambda y: [model(y) + 1], model, x) == pytest.approx(1, rel=0.1)
    with pytest.raises(ValueError, match="shapes of the model's"):
        difference(lambda y: [model(y)[:, :5]], model, x)


@pytest.mark.landing
def test_the_command_exports_a_checkpoint_at_a_fixed_size(tmp_path, capsys):
    model = create("test_cvt_ls", num_classes=7)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    command = "--model test_cvt_ls --num-classes 7 --static-size --img-size 40 56"
    out = tmp_path / "model.pt2"
    main([*command.split(), "--checkpoint", f"{tmp_path}/weights.pth", "--out", str(out)])
    assert "agrees with PyTorch" in capsys.readouterr().out
    run = torch.export.load(out).module()
    x = torch.randn(5, 3, 40, 56)
    torch.testing.assert_close(run(x), model(x))


@pytest.mark.landing
@pytest.mark.usefixtures("onnx")
def test_the_command_exports_feature_maps(tmp_path, capsys):
    out = tmp_path / "maps.onnx"
    main(["--model", "test_cvt_ls", "--static-size", "--features-only", "--out", str(out)])
    assert "agrees with PyTorch" in capsys.readouterr().out
    import onnxruntime

    session = onnxruntime.InferenceSession(str(out))
    assert [output.name for output in session.get_outputs()] == ["map_0", "map_1", "map_2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model test_vil_lss --out m.onnx", "--model must be a model that timm knows"),
        ("--model test_vil_ls --out m.onx", "--out must end in .onnx, .xml or .pt2, got m.onx"),
        ("--model test_vil_ls --out m.pt2 --int8", "--int8 writes an .onnx file, got"),
        ("--model test_vil_ls --out m.xml", "--runtime openvino and an .xml file go"),
        ("--model test_vil_ls --out m.onnx --runtime openvino", "--runtime openvino and an"),
        ("--model test_vil_ls --out no/m.onnx", "--out must be in a folder that exists"),
        ("--model test_vil_ls --out m.onnx --compile", "--compile writes a .pt2 file"),
        ("--model test_vil_ls --out m.pt2 --num-classes -1", "--num-classes must not be neg"),
        ("--model test_vil_ls --out m.pt2 --img-size 0 9", "--img-size must be positive"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr("vit_ls.errors.find_spec", lambda _name: object())
    assert job.command_line("export", lambda: main(arguments.split())) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"export: {message}")
    assert error.count("\n") == 1


def test_onnx_without_its_extra_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr("vit_ls.errors.find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match=r"pip install onnx onnxscript onnxruntime"):
        main(["--model", "test_vil_ls", "--out", "m.onnx"])


def test_a_failed_check_is_status_1(monkeypatch, capsys):
    monkeypatch.setattr("vit_ls.export.write_program", lambda model, *_: lambda x: [model(x) + 1])
    arguments = ["--model", "test_cvt_ls", "--out", "m.pt2"]
    assert job.command_line("export", lambda: main(arguments)) == 1
    assert "must agree with PyTorch to 0.0001, differs by 1.0e+00" in capsys.readouterr().err
