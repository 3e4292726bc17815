"""The page of a query that ran, in a browser."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from tests.support.browser import Page, browser_path, opened_browser

QUERY = """
SELECT id FROM seen
WHERE ST_Contains(ST_GeomFromText('POLYGON ((-91 40, -86 40, -86 43, -91 43, -91 40))'), ST_Point(lng, lat))
  AND (city > 'b' OR NOT (temp < 30 AND id % 2 = 0)) AND city <> '<script>alert(1)</script>'"""


@pytest.fixture(scope="module")
def written(spark: Any, plain: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a query over twelve files, each a box of two degrees, from west to east."""
    browser_path()  # where there is none, no session is needed
    folder = tmp_path_factory.mktemp("page") / "seen"
    folder.mkdir()
    for number in range(12):
        west = -100 + 2.0 * number
        columns = {"lng": [west, west + 1.9], "lat": [41.0, 42.0], "city": ["a", "c"], "temp": [number, 10 * number]}
        pq.write_table(pa.table({**columns, "id": [1, 2]}), folder / f"part-{number}.parquet")
    geoskip.build(str(folder), [GeoBox("lng", "lat", boxes=1), MinMax("city"), MinMax("temp")])
    plain.read.parquet(str(folder)).createOrReplaceTempView("seen")
    frame = plain.sql(QUERY)
    frame.collect()
    path = folder.parent / "report.html"
    geoskip.report(frame).to_html(path)
    return path


@pytest.fixture(scope="module")
def browser(written: Path) -> Iterator[Page]:
    with opened_browser() as found:
        yield found


@pytest.fixture
def page(browser: Page, written: Path) -> Page:
    """The page as it was when it was opened."""
    browser.open(written)
    return browser


def picture(page: Page) -> int:
    """A checksum of the map's pixels, once they stay as they are: a slow drawing follows a rest."""
    found = -1
    while True:
        before = found
        page.drawn()
        found = zlib.crc32(page.run("document.querySelector('canvas').toDataURL()").encode())
        if found == before:
            return found
        time.sleep(0.2)


@pytest.mark.slow
def test_the_page_says_what_was_read(page: Page) -> None:
    assert page.run("document.querySelector('h1').textContent").startswith("Read 4 of 12 files, ")
    assert page.run("document.querySelector('.query').textContent").strip() == QUERY.strip()
    texts = page.run("[...document.querySelectorAll('.tree code')].map((node) => node.textContent)")
    assert {
        "ST_Contains(POLYGON (…), ST_Point(lng, lat))",
        "city > 'b'",
        "temp >= 30",
        "city <> '<script>alert(1)</script>'",
    } <= set(texts)
    titles = page.run("[...document.querySelectorAll('h2, h3')].map((node) => node.textContent)")
    assert titles == [
        "Query", "seen", "What each clause skips by itself", "The condition, vertex by vertex", "Where the files are",
        "How the files cluster", "Reasons", "Settings",
    ]  # fmt: skip
    page.run("document.querySelector('.tree details').open = false")
    assert page.run("document.querySelector('.tree details code').checkVisibility()") is False


def test_it_loads_nothing_and_complains_of_nothing(page: Page, written: Path) -> None:
    page.drawn()
    assert page.problems == []
    assert {url for url in page.requests if not url.startswith("data:")} == {written.as_uri()}
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.was = 1\">')")
    page.drawn()
    assert page.run("window.was") is None, "the policy runs no other script"
    page.problems.clear()


def test_the_map_shows_kept_and_skipped_boxes_the_query_and_land(page: Page) -> None:
    script = """(() => {
      const canvas = document.querySelector("canvas");
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const found = {};
      for (let i = 0; i < data.length; i += 4) {
        const [r, g, b] = data.slice(i, i + 3);
        const name = r - b > 60 ? "kept" : b - r > 60 ? "skipped" : r + g + b < 120 ? "query"
          : r > 245 && r >= b ? "land" : b > r ? "water" : "";
        found[name] = (found[name] || 0) + 1;
      }
      return found;
    })()"""
    found = page.run(script)
    assert all(found.get(name, 0) > 50 for name in ("kept", "skipped", "query", "land", "water")), found


@pytest.mark.slow
def test_pan_and_zoom_by_mouse_keys_and_buttons(page: Page) -> None:
    page.run("document.querySelector('canvas').scrollIntoView({ block: 'center' })")
    box = page.run(
        "(() => { const b = document.querySelector('canvas').getBoundingClientRect(); return [b.x, b.y]; })()"
    )
    x, y = box[0] + 400, box[1] + 200
    seen = [picture(page)]

    def changed() -> bool:
        seen.append(picture(page))
        return seen[-1] not in seen[:-1]

    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-50)
    assert not changed(), "without the focus the page scrolls"
    page.open(Path(page.run("decodeURI(location.pathname)")))
    page.run("document.querySelector('canvas').scrollIntoView({ block: 'center' })")
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseMoved", x - 90, y - 30, button="left", buttons=1)
    page.mouse("mouseReleased", x - 90, y - 30, button="left", clickCount=1)
    assert changed()
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-150)
    assert changed()
    page.press("ArrowLeft", "ArrowLeft")
    assert changed()
    page.press("+", "Equal")
    assert changed()
    for _ in range(2):
        page.run("document.querySelector('[aria-label=\"Zoom out\"]').click()")
    assert changed()
    page.press("0", "Digit0")
    assert picture(page) == seen[0], "as at the beginning"
    assert page.problems == []


def test_the_file_below_the_pointer_is_named(page: Page) -> None:
    page.run("document.querySelector('canvas').scrollIntoView({ block: 'center' })")
    place = page.run("(() => { const b = document.querySelector('canvas').getBoundingClientRect(); "
                     "return [b.x + b.width / 2 + 20, b.y + b.height / 2]; })()")  # fmt: skip
    page.mouse("mouseMoved", *place)
    page.drawn()
    assert page.run("document.querySelector('.tip').innerText") == "part-6.parquet (kept)"


def test_light_and_dark_by_preference_and_by_the_button(page: Page) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page.scheme("light")
    light = page.run(ground), picture(page)
    page.scheme("dark")
    dark = page.run(ground), picture(page)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.run("document.getElementById('theme').click()")
    assert (page.run(ground), picture(page)) == light
    page.run("document.getElementById('theme').click()")
    page.scheme("light")
    assert (page.run(ground), picture(page)) == dark, "the button wins"
    assert page.screenshot().startswith(b"\x89PNG")
    assert page.problems == []


def test_it_prints(page: Page) -> None:
    page.scheme("dark")
    printed = page.pdf()
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 1
    page.send("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.drawn()
    scheme = page.run("getComputedStyle(document.documentElement).backgroundColor")
    assert scheme == "rgb(255, 255, 255)", "paper is light"
    assert page.run("document.getElementById('theme').checkVisibility()") is False
    page.send("Emulation.setEmulatedMedia", media="")
    folded = "document.querySelectorAll('details:not([open])').length"
    assert page.run(folded) > 0
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run(folded) == 0, "on paper nothing can be opened"
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run(folded) > 0
    assert page.problems == []


def test_the_map_fits_a_narrow_page(page: Page) -> None:
    """No kept box touches its frame, as on the wide one."""
    at_the_frame = """(() => {
      const canvas = document.querySelector("canvas");
      const { width, height } = canvas;
      const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
      const isKept = (x, y) => data[4 * (y * width + x)] - data[4 * (y * width + x) + 2] > 60;
      const rows = [...Array(height).keys()].flatMap((y) => [isKept(2, y), isKept(width - 3, y)]);
      const columns = [...Array(width).keys()].flatMap((x) => [isKept(x, 2), isKept(x, height - 3)]);
      return [...rows, ...columns].filter(Boolean).length;
    })()"""
    width = page.run("innerWidth")
    try:
        assert page.run(at_the_frame) == 0
        page.resize(420, 900)
        page.drawn()
        assert page.run("document.querySelector('canvas').width") < 420
        assert page.run(at_the_frame) == 0
    finally:
        page.resize(width, 900)
