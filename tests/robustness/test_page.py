"""The page of reports, in a real browser where there is one."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustness import page
from robustness.data.benchmarks import IN_MCE, grid
from robustness.reporting.page import WorstImage, to_html
from robustness.rules.results import CellResult, Report, Result

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
RIGHTS = (3000, 1000, 2000)
NAMES = ["best", "worst<b>", "middle"]


def report(right: int, a: int) -> Report:
    identity = {"transform": "t", "images": "5000", "data": "d"}
    cells = {
        cell: CellResult({"top1": right - 150 * int(cell[-1]), "images": 5000})
        for cell in grid(IN_MCE)
    }
    c = Result(
        "imagenet-c", "mce", "c", "official files", "fed", identity, 5000, list(cells), cells
    )
    one = {"all": CellResult({"top1": a, "top5": a, "top1_unmasked": a, "images": 5000})}
    label = "official files"
    r = Result("imagenet-a", "masked", "a", label, "fed", identity, 5000, ["all"], one)
    model = {"name": "m", "arguments": {}, "weights": "0" * 64, "dtype": "float32",
             "origin": "random", "class": "M"}  # fmt: skip
    return Report(model, [r, c])


REPORTS = [report(right, a) for right, a in zip(RIGHTS, (100, 300, 200), strict=True)]


def write(path: Path, *, script: str = "") -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    worst = [WorstImage("worst images of a", "x.png: said class 1", Image.fromarray(pixels))]
    text = to_html(REPORTS, NAMES, worst)
    path.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    return path


def chromium(page: Path, folder: Path, *flags: str, anchor: str = "") -> str:
    """What the browser prints; it may not reach any network."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--disable-background-networking", "--disable-dev-shm-usage",
               "--proxy-server=127.0.0.1:9", f"--user-data-dir={folder / 'profile'}", *flags,
               f"file://{page}{anchor}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def order(dom: str) -> list[str]:
    board = re.search(r'<table id="leaderboard">.*?</table>', dom, re.DOTALL)
    assert board is not None
    body = board[0].split("<tbody>")[1]
    return re.findall(r"<tr><td>(.*?)</td>", body)


def test_the_page_holds_all_it_needs_and_names_are_text(tmp_path: Path) -> None:
    text = write(tmp_path / "x.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert not re.search(r"https?://", text)
    assert "worst&lt;b&gt;" in text
    assert "worst<b>" not in text
    assert to_html(REPORTS, NAMES) == to_html(REPORTS, NAMES)


def test_each_row_says_which_way_is_better_and_marks_the_best() -> None:
    text = to_html(REPORTS, NAMES)
    rows = dict(
        re.findall(r"<tr><td>imagenet-[ac]</td><td>(.*?)</td><td>(higher|lower)</td>", text)
    )
    assert rows["top-1"] == "higher"
    assert rows["mCE"] == rows["mean error"] == rows["CE fog"] == "lower"
    line = next(part for part in text.split("<tr>") if "<td>mCE</td>" in part)
    values = re.findall(r'class="(number[ a-z]*)"', line)
    assert values == ["number best", "number", "number"]


@browser
def test_the_leaderboard_sorts_the_best_first(tmp_path: Path) -> None:
    # Columns: model, ImageNet-A (higher is better), mCE (lower is better).
    path = write(tmp_path / "x.html")
    assert order(chromium(path, tmp_path, "--dump-dom")) == ["best", "worst&lt;b&gt;", "middle"]
    by = {anchor: order(chromium(path, tmp_path, "--dump-dom", anchor=anchor))
          for anchor in ("#sort=1", "#sort=2")}  # fmt: skip
    assert by["#sort=1"] == ["worst&lt;b&gt;", "middle", "best"]
    assert by["#sort=2"] == ["best", "middle", "worst&lt;b&gt;"]
    click = "const b = document.querySelectorAll('#leaderboard button')[2]; b.click(); b.click();"
    dom = chromium(write(tmp_path / "y.html", script=click), tmp_path, "--dump-dom")
    assert order(dom) == ["worst&lt;b&gt;", "middle", "best"]


@browser
@pytest.mark.parametrize("width", [500, 1400])
def test_the_page_is_no_wider_than_the_window_and_has_its_pictures(
    width: int, tmp_path: Path
) -> None:
    script = (
        "const images = [...document.images].every((i) => i.complete && i.naturalWidth > 0);"
        "const lines = document.querySelectorAll('svg path').length;"
        "const over = document.documentElement.scrollWidth > innerWidth;"
        "document.body.innerHTML += '<pre>' + JSON.stringify({images, lines, over}) + '</pre>';"
    )
    path = write(tmp_path / "x.html", script=f"onload = () => {{ {script} }};")
    dom = chromium(path, tmp_path, "--dump-dom", f"--window-size={width},900")
    found = re.search(r"<pre>(\{.*?)</pre>", dom)
    assert found is not None
    said = json.loads(found[1])
    assert said == {"images": True, "lines": 15 * 4, "over": False}


@browser
def test_light_and_dark_are_two_pictures_of_one_page(tmp_path: Path) -> None:
    path = write(tmp_path / "x.html")
    means = []
    for theme in ((), ("--blink-settings=preferredColorScheme=0",)):
        shot = tmp_path / f"{len(means)}.png"
        chromium(path, tmp_path, f"--screenshot={shot}", "--window-size=900,1200", *theme)
        with Image.open(shot) as picture:
            means.append(np.asarray(picture.convert("L")).mean())
    assert max(means) > 200
    assert min(means) < 80


def test_a_page_of_no_report_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"python -m robustness.page: {tmp_path}/report.json cannot be read"
    )
