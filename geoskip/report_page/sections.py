"""Sections of a report's page; a notebook shows the first ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import compress
from typing import TYPE_CHECKING

from geoskip.rendering import Markup, element
from geoskip.report import condense, count_of, size_of
from geoskip.report_page.column_spans import ColumnPicture, pictures_of
from geoskip.report_page.map_data import ScanMap, map_of
from geoskip.sources.settings import PREFIX, SETTINGS
from geoskip.vertex_labels import VertexShare

if TYPE_CHECKING:
    from geoskip.report import Report, Scan

_MOST_TREES = 3
_MOST_NAMES = 200
_MOST_BELOW = 60
"""Maximum number of shown children of a vertex."""


def headline(read: Report | Scan) -> str:
    """Files and bytes read and in total; a unit that both amounts share is shown once."""
    kept, total = size_of(read.bytes_kept), size_of(read.bytes_total)
    if kept.split()[-1] == total.split()[-1]:
        kept = kept.split()[0]
    return f"read {read.files_kept:,} of {count_of(read.files_total, 'file')}, {kept} of {total}"


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.00234), duration(4.2)
    ('2.3 ms', '4.2 s')
    """
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def read_of_all(read: Report | Scan) -> Markup:
    """Two bars: the shares of the files and of the bytes that were read."""
    rows = [
        ("Files", read.files_kept, read.files_total),
        ("Bytes", read.bytes_kept, read.bytes_total),
    ]
    cells = [
        (
            element("span", name),
            _bar(kept, total, f"{_percent(kept, total)} of the {name.lower()} were read", "bar read"),
            element("span", f"{_percent(kept, total)} read", class_="of"),
        )
        for name, kept, total in rows
    ]
    return element("div", *cells, class_="amounts")


def clauses(scan: Scan) -> Markup | None:
    """A bar for each clause; its length is the share of the files that the clause alone would skip."""
    found = [(text, count) for text, count in scan.clauses() if count]
    if not found:
        return None
    items = [
        element(
            "li",
            element("code", condense(text, 300)),
            element(
                "div",
                _bar(count, scan.files_total, f"{_percent(count, scan.files_total)} skipped"),
                element("span", _skips(count, scan.files_total), class_="count"),
                class_="measure",
            ),
        )
        for text, count in found
    ]
    return element("ul", *items, class_="clauses")


def tree(scan: Scan) -> list[Markup]:
    """The predicate with the share of the files that each of its vertices alone would skip."""
    shares = scan.vertices()[:_MOST_TREES]
    return [element("ul", _vertex(share), class_="tree") for share in shares]


def _vertex(share: VertexShare) -> Markup:
    if share.below:
        served: str | None = None
    else:
        served = ", ".join(share.indexes) or ("always false" if share.skips else "no index serves it")
    row = element(
        "span",
        element(
            "span",
            element("b", share.text) if share.below else element("code", condense(share.text, 400)),
            served and element("span", served, class_="served"),
            class_="text",
        ),
        _bar(share.skips, share.among, f"{_percent(share.skips, share.among)} skipped"),
        element("span", _skips(share.skips, share.among), class_="count"),
        class_="row",
    )
    if not share.below:
        return element("li", row)
    # Spark adds IS NOT NULL to every condition on a column
    is_told = [share.text != "AND" or each.skips or not each.text.endswith(" IS NOT NULL") for each in share.below]
    shown = list(compress(share.below, is_told)) or share.below
    left = len(shown) - _MOST_BELOW
    more = element("li", f"and {left:,} more", class_="muted") if left > 0 else None
    below = element("ul", *(_vertex(each) for each in shown[:_MOST_BELOW]), more)
    return element("li", element("details", element("summary", row), below, open=True))


def reasons(texts: Iterable[str], lost: Iterable[str] = ()) -> Markup | None:
    """Sentences as a list; those on lost rows come first."""
    items = [element("li", element("b", "rows lost: "), text, class_="lost") for text in lost]
    items += [element("li", text) for text in texts]
    return element("ul", *items, class_="reasons") if items else None


def query(report: Report) -> Markup | None:
    """The text of the query, or else its plan."""
    text = report.query
    return element("pre", element("code", text), class_="query") if text else None


def map_figure(scan: Scan) -> Markup | None:
    """A map with pan and zoom; None for a scan without boxes."""
    found = map_of(scan)
    return None if found is None else _map(scan, found)


def _map(scan: Scan, shown: ScanMap) -> Markup:
    keys = "Drag to pan. Click the map, then scroll to zoom, or use the keys + − 0 and the arrows."
    legend = [
        element("span", f"kept: {count_of(scan.files_kept, 'file')}", class_="kept"),
        element("span", f"skipped: {count_of(scan.files_skipped, 'file')}", class_="skipped"),
        element("span", "the query", class_="shape") if shown.has_query else None,
    ]
    alt = f"Map of {count_of(shown.drawn, 'box').replace('boxs', 'boxes')} of {shown.index}: {headline(scan)}."
    notes = []
    if shown.drawn < shown.boxes:
        notes.append(f"{shown.drawn:,} of {shown.boxes:,} boxes are drawn.")
    if shown.kept_without:
        notes.append(f"{count_of(shown.kept_without, 'kept file')} without a box.")
    button = [("+", "Zoom in", "+"), ("-", "Zoom out", "−"), ("0", "Show the region of the query", "⟲")]
    return element(
        "figure",
        element("canvas", alt, tabindex="0", role="img", aria_label=f"{alt} {keys}"),
        element(
            "div",
            *(element("button", text, type="button", value=value, aria_label=name, title=name)
              for value, name, text in button),
            class_="tools", hidden=True,
        ),
        element("div", class_="tip", hidden=True, aria_hidden="true"),
        element("script", Markup(shown.json), type="application/json"),
        element("figcaption", element("div", *legend, class_="legend"),
                element("p", " ".join([keys, *notes]), class_="muted hint")),
        element("noscript", element("p", "The map needs JavaScript.", class_="muted")),
        class_="map",
    )  # fmt: skip


def layout_figures(scan: Scan) -> Markup | None:
    """A picture for each column of the condition, with its span in every file."""
    found = pictures_of(scan)
    return element("div", *map(_spans, found), class_="columns") if found else None


def _spans(picture: ColumnPicture) -> Markup:
    figures = picture.figures
    count = figures.files - figures.empty
    deep = figures.files_read[0]
    many = f"{deep:,.0f}" if deep >= 100 else f"{deep:.3g}"
    text = f"A value lies in the span of {many} of {count:,} files on average; 1 is ideal."
    text += f" {picture.drawn:,} of them are drawn." if picture.drawn < count else ""
    text += " A few lie far outside." if picture.is_cut else ""
    return element(
        "figure",
        element("figcaption", element("code", picture.name)),
        picture.svg,
        element("div", element("span", picture.low), element("span", picture.high), class_="ends muted"),
        element("p", text, class_="muted"),
        class_="spans",
    )


def kept_names(scan: Scan) -> Markup | None:
    """The names of the files that were read, collapsed and limited in number."""
    names = scan.kept_files()
    if not names:
        return None
    prefix = scan.dataset.rstrip("/") + "/"
    items = [element("li", element("code", name.removeprefix(prefix))) for name in names[:_MOST_NAMES]]
    if len(names) > _MOST_NAMES:
        items.append(element("li", f"and {len(names) - _MOST_NAMES:,} more"))
    summary = element("summary", f"The {count_of(len(names), 'file')} read" if len(names) > 1 else "The file read")
    return element("details", summary, element("ul", *items, class_="files"))


_SECRET = re.compile(r"(?i)secret|password|passwd|token|credential|key")


def settings(found: Mapping[str, str]) -> Markup | None:
    """A table of geoskip's settings, those that are set first; None for a query without settings.

    Values that may be secrets are not shown.
    """
    if not found:
        return None
    defaults = {PREFIX + setting.name: setting.default for setting in SETTINGS}
    rows = [
        element("tr", element("th", element("code", name), scope="row"), element("td", _value(name, value)))
        for name, value in sorted(found.items())
    ]
    rows += [
        element(
            "tr",
            element("th", element("code", name), scope="row"),
            element("td", element("code", default), " by default" if default else "none", class_="muted"),
        )
        for name, default in defaults.items()
        if name not in found
    ]
    return element("table", element("tbody", *rows))


def _value(name: str, value: str) -> Markup:
    hidden = _SECRET.search(name) is not None
    return element("span", "set, not shown", class_="muted") if hidden else element("code", value)


def _bar(part: int, whole: int, title: str, kind: str = "bar") -> Markup:
    share = 100 * part / whole if whole else 0.0
    least = 0.6 if part else 0.0  # so that one file in thousands is visible
    width = element("i", style=f"width:{max(share, least):.2f}%")
    return element("span", width, class_=kind, title=title, aria_hidden="true")


def _skips(count: int, among: int) -> str:
    return f"skips {count:,} ({_percent(count, among)})" if count else "skips none"


def _percent(part: int, whole: int) -> str:
    """A share in percent; 0 % and 100 % only where they are exact.

    >>> _percent(1, 3000), _percent(2999, 3000), _percent(0, 0), _percent(1, 4), _percent(296, 300)
    ('< 0.1 %', '> 99.9 %', '0 %', '25 %', '98.7 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.05:
        return "< 0.1 %"
    return "> 99.9 %" if 99.95 <= share < 100 else f"{round(share, 1):g} %"
