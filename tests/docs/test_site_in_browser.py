"""The site in a headless browser: links, search, a phone's width, light and dark.

Needs the extras `docs` and `browser`, and a Chromium or Chrome of the system. The last test leaves
screenshots in its folder (`--basetemp DIR` says where), for somebody to look at.
"""

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT
from PIL import Image

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra browser")
pytest.importorskip("mkdocs", reason="needs the extra docs")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
]

WIDTHS = {"phone": 390, "desk": 1280}
READABLE = 4.5
"""Least contrast of text that WCAG 2.1 asks for at level AA."""
WIDE = """() => [...document.querySelectorAll("article table")]
    .filter(table => !table.closest("details"))  // those that fold may scroll
    .filter(table => table.offsetWidth > table.closest("article").offsetWidth)
    .map(table => table.rows[0].textContent)"""
"""Heads of tables that do not fit."""
CONTRASTS = """() => {
    const channels = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const over = (top, below) => {
        const alpha = top.length > 3 ? top[3] : 1;
        return [0, 1, 2].map(i => alpha * top[i] + (1 - alpha) * below[i]);
    };
    const background = element => {
        if (!element) return [255, 255, 255];
        const own = channels(getComputedStyle(element).backgroundColor);
        return over(own, background(element.parentElement));
    };
    const light = color => {
        const linear = color.map(c => c / 255).map(
            c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    return [...document.querySelectorAll("article :is(p, li, td, th, code, a:not(.headerlink))")]
        .filter(element => element.checkVisibility() && element.textContent.trim())
        .map(element => {
            const below = background(element);
            const text = over(channels(getComputedStyle(element).color), below);
            const [dark, bright] = [light(text), light(below)].sort((a, b) => a - b);
            return [(bright + 0.05) / (dark + 0.05), element.textContent.slice(0, 40)];
        });
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Writes no line for each request."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    serve = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def pages(site: Path, address: str) -> list[str]:
    found = sorted(path.parent.relative_to(site) for path in site.rglob("index.html"))
    assert len(found) > 20
    return [address if name == Path() else f"{address}{name.as_posix()}/" for name in found]


def opened(browser: Any, width: int, scheme: str = "light") -> tuple[Any, list[str]]:
    """An empty tab, and the list that takes what goes wrong in it."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    tab, wrong = context.new_page(), []
    own = ("http://127.0.0.1:", "data:", "blob:")
    tab.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    tab.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
    tab.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    return tab, wrong


def test_no_link_of_the_site_is_broken_and_nothing_is_loaded_from_elsewhere(
    browser: Any, pages: list[str], address: str
) -> None:
    tab, wrong = opened(browser, WIDTHS["desk"])
    links, places = {}, set()
    for page in pages:
        tab.goto(page)
        names = tab.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
        places |= {f"{page}#{name}" for name in names}
        for link in tab.eval_on_selector_all("a[href]", "all => all.map(e => e.href)"):
            links.setdefault(link, page)
    inside = {link: page for link, page in links.items() if link.startswith(address)}
    assert len(inside) > len(pages)
    broken = []
    for link, page in inside.items():
        file, _, fragment = link.partition("#")
        found = tab.request.head(file).ok if file not in pages else True
        if not found or (fragment and file in pages and link not in places):
            broken.append(f"{link} on {page}")
    assert not broken
    assert not wrong


def test_a_search_finds_a_page_that_opens(browser: Any, address: str) -> None:
    tab, wrong = opened(browser, WIDTHS["desk"])
    tab.goto(address)
    tab.keyboard.press("s")  # the key of the theme for its search
    tab.keyboard.type("composite slices")
    first = tab.locator(".md-search-result__link").first
    first.wait_for()
    assert "slice" in first.inner_text().lower()
    first.click()
    tab.wait_for_url(lambda url: url.split("?")[0].split("#")[0] != address)
    assert "slice" in tab.locator("article").inner_text().lower()
    assert not wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_its_screen_and_can_be_read(
    browser: Any, pages: list[str], site: Path, tmp_path: Path, width: str, scheme: str
) -> None:
    tab, wrong = opened(browser, WIDTHS[width], scheme)
    for page in pages:
        tab.goto(page)
        assert tab.evaluate("document.body.dataset.mdColorScheme") == (
            "slate" if scheme == "dark" else "default"
        )
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, page
        if width == "desk":
            assert tab.evaluate(WIDE) == [], page
        contrasts = tab.evaluate(CONTRASTS)
        assert contrasts, page
        assert min(contrasts)[0] >= READABLE, (page, min(contrasts))
        for picture in tab.eval_on_selector_all("article img", "all => all.map(e => e.src)"):
            file = site / picture.split("/", 3)[-1]
            # black lines on no ground would vanish on a dark page
            assert Image.open(file).convert("RGBA").getextrema()[3] == (255, 255), file
        name = "start" if page.count("/") == 3 else page.split("/", 3)[-1].strip("/")
        tab.screenshot(path=tmp_path / f"{name.replace('/', '_')}.png")
    assert not wrong
