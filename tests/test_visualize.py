"""python -m vit_ls.visualize: its pictures, its page in a browser, and what it refuses."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import vit_ls
import vit_ls.visualize
from vit_ls import job
from vit_ls.visualize.__main__ import main
from vit_ls.visualize.page import write_page
from vit_ls.visualize.rollout import rollout

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SMALL = ["test_cvt_ls", "test_vil_ls", "test_cst_vit", "test_cst_vil", "test_vil", "test_cvt"]


def recorded(name, size=(45, 70)):
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    with torch.no_grad(), vit_ls.record(model) as records:
        model(torch.randn(1, 3, *size))
    return records


@pytest.mark.parametrize("name", ["test_cvt_ls", "test_cst_vit"])
def test_pictures_of_a_model_are_written_and_the_shares_printed(name, tmp_path, capsys):
    main(["--model", name, "--out", str(tmp_path), "--query", "1", "2", "--img-size", "40", "56"])
    said = capsys.readouterr().out
    shares = [float(x) for x in re.findall(r"\w+ ([\d.]+)%", said)]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    written = {path.name for path in tmp_path.iterdir()}
    own = "projection_stage_0.png" if name == "test_cvt_ls" else "slices_stage_0.png"
    assert {"query.png", "rollout.png", "index.html", own} <= written


@pytest.mark.parametrize("name", SMALL)
def test_a_rollout_is_a_share_of_each_token_of_the_first_grid(name):
    records = recorded(name)
    relevance = rollout(records, from_token=name in ("test_cvt_ls", "test_cvt"))
    assert relevance.shape[1:] == next(iter(records.values())).grid
    assert relevance.min() >= 0
    assert 0.3 < relevance.sum() < 1 + 1e-5


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--image", __file__], "--image must be an image that Pillow reads, got .*test_visualize"),
        (["--image", "none.png"], "--image must be an image that Pillow reads, got none.png"),
        (["--layer", "stages.9.attn"], "--layer must be one of 4 from stages.0.*'stages.9.attn'"),
        (["--head", "7", "--layer", "stages.0.blocks.0.attn"], "--head must be from 0 to 0 .* 7"),
        (["--query", "8", "0"], "--query: query must lie in the grid of 8 x 8 tokens.* got 8,0"),
        (["--model", "test_resnet"], "model must have attention layers of vit_ls"),
        (["--model", "cvt_ls_14"], "--model must be a model that timm knows, got 'cvt_ls_14'"),
    ],
)
def test_what_does_not_exist_is_one_line_and_status_2(flags, complaint, tmp_path, capsys):
    argv = ["--model", "test_cvt_ls", "--out", str(tmp_path / "maps"), *flags]
    assert job.command_line("vit_ls.visualize", lambda: main(argv)) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(rf"vit_ls.visualize: {complaint}.*\n", said)
    assert not list(tmp_path.glob("maps/*"))


def test_the_weights_of_a_checkpoint_are_those_that_are_seen(tmp_path, capsys):
    argv = ["--model", "test_vil_ls", "--out", str(tmp_path / "maps")]
    main(argv)
    untrained = capsys.readouterr().out
    model = timm.create_model("test_vil_ls")
    torch.nn.init.normal_(model.stages[0].blocks[0].attn.qkv.weight)
    file = tmp_path / "weights.pth"
    torch.save(model.state_dict(), file)
    main([*argv, "--checkpoint", str(file)])
    trained = capsys.readouterr().out
    assert f"test_vil_ls ({file}, raw weights), stages.0" in trained
    assert trained.partition("attn: ")[2] != untrained.partition("attn: ")[2]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("test_vil_ls", "cannot be read: no such file"), ("test_cvt_ls", "must fit test_cvt_ls")],
)
def test_a_checkpoint_that_does_not_fit_is_one_line(name, complaint, tmp_path, capsys):
    file = tmp_path / "weights.pth"
    if name == "test_cvt_ls":
        torch.save(timm.create_model("test_vil_ls").state_dict(), file)
    argv = ["--model", name, "--checkpoint", str(file), "--out", str(tmp_path / "maps")]
    assert job.command_line("vit_ls.visualize", lambda: main(argv)) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert not (tmp_path / "maps").exists()


def colours_of(scheme):
    """The variables of the page's style: the light ones, and what the dark scheme changes."""
    text = (Path(vit_ls.visualize.__file__).parent / "page.html").read_text()
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})", block))
                   for block in re.findall(r":root \{(.*?)\}", text, re.DOTALL))  # fmt: skip
    return light if scheme == "light" else light | dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_the_page_has_a_contrast_of_4_5(scheme):
    colours = colours_of(scheme)
    ground = luminance(colours.pop("ground"))
    assert set(colours) == {"ink", "quiet", "mark"}
    for name, colour in colours.items():
        low, high = sorted((luminance(colour), ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name
    assert (ground < 0.5) == (scheme == "dark")


def luminance(colour):
    """Relative, as WCAG 2.1 defines it."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_a_mouse_and_keys_move_the_query_of_the_page(tmp_path):
    page = tmp_path / "index.html"
    layer = recorded("test_cvt_ls", (32, 32))["stages.1.blocks.0.attn"]
    write_page(layer, Image.new("RGB", (64, 64), "gray"), "<b>", page)
    text = page.read_text()
    assert "&lt;b&gt;" in text
    assert not re.search(r"https?://", text)
    script = """<script>addEventListener("load", () => {
      const canvas = document.querySelector("#query canvas"), box = canvas.getBoundingClientRect();
      const move = (x, y) => canvas.dispatchEvent(new PointerEvent("pointermove", {
        clientX: box.left + box.width * x, clientY: box.top + box.height * y }));
      const seen = () => ["window", "projected"].map((part) =>
        document.querySelector(`[data-part=${part}] canvas`).toDataURL());
      move(0.1, 0.9); const first = seen();
      move(0.9, 0.1); const second = seen();
      const said = { query: document.querySelector("#query figcaption").textContent,
        shares: document.getElementById("shares").textContent,
        window: first[0] !== second[0],
        named: document.querySelector("[data-part=window] canvas").ariaLabel,
        wide: document.documentElement.scrollWidth > innerWidth };
      const caption = document.querySelector("#query figcaption");
      const key = (where, name) => {
        const event = new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true });
        return [where.dispatchEvent(event), caption.textContent];
      };
      const row = document.getElementById("row");
      said.elsewhere = key(document.body, "ArrowDown");
      said.slider = key(row, "ArrowDown");
      said.tab = key(row, "Tab")[0];
      row.value = 3;
      row.dispatchEvent(new Event("input"));
      said.moved = caption.textContent;
      said.labels = [...document.querySelectorAll("label")].map((x) => x.textContent.trim());
      document.body.innerHTML += `<pre>${JSON.stringify(said)}</pre>`;
    });</script></body>"""
    page.write_text(text.replace("</body>", script))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--disable-background-networking", "--proxy-server=127.0.0.1:9",
               f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,800",
               "--dump-dom", f"file://{page}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = json.loads(re.findall(r"<pre>(\{.*?)</pre>", done.stdout)[-1])
    share = layer.shares()["window"][0].mean(0)[0, 3].item()
    assert said.pop("shares").startswith(f"shares: window {100 * share:.1f} %")
    assert said.pop("named").startswith(f"window: {100 * share:.1f} %, most at row ")
    assert said == {
        "query": "query: row 0, column 3", "window": True, "wide": False,
        "elsewhere": [True, "query: row 0, column 3"],  # the page scrolls
        "slider": [False, "query: row 1, column 3"], "tab": True,
        "moved": "query: row 3, column 3", "labels": ["row", "column"],
    }  # fmt: skip
