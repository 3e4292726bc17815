"""A self-contained HTML page on a query: :meth:`geoskip.report.Report.to_html`.

The page is one file that loads nothing: styles, script and data are in it, and its Content-Security-Policy allows only
this script. All texts are escaped by :mod:`~geoskip.rendering`. The colours are those of
:mod:`geoskip.plotting`. A notebook shows the first sections, which the same functions create.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from geoskip.errors import GeoskipError
from geoskip.rendering import Child, Markup, element, join_children
from geoskip.report import condense, count_of
from geoskip.report_page import sections

if TYPE_CHECKING:
    from geoskip.report import Report, Scan


def page_of(report: Report) -> str:
    """The whole page as text."""
    from geoskip import __version__

    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = sections.headline(report) if report.scans else "the query reads no files"
    skipped = report.files_total - report.files_kept
    planned = sum(scan.planning_seconds for scan in report.scans)
    facts = [count_of(skipped, "file") + " skipped"] if report.scans else []
    facts += [f"planned in {sections.duration(planned)}"] if planned else []
    facts.append(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    lone = len(report.scans) == 1
    body = [
        element(
            "header",
            element(
                "div",
                element("span", "geoskip report", class_="muted"),
                element("button", "Dark", id="theme", type="button", hidden=True, title="Switch light and dark"),
                class_="over",
            ),
            element("h1", _sentence(head)),
            element("p", " · ".join(facts), class_="muted facts"),
            sections.read_of_all(report) if report.scans else None,
        ),
        element(
            "main",
            _section("Query", sections.query(report)),
            *(_scan(scan, lone) for scan in report.scans),
            _section("Notes", sections.reasons(report.notes)),
            _section("Settings", sections.settings(report.settings)),
        ),
        element("footer", element("p", f"Made by geoskip {__version__}.", class_="muted")),
    ]
    return "<!doctype html>\n" + element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", f"geoskip: {head}"),
            element("style", Markup(_asset("report.css") + _asset("page.css"))),
        ),
        element("body", *body, element("script", Markup(script)), class_="geoskip-report"),
        lang="en",
    )


def short_form(report: Report) -> str:
    """The report as a notebook shows it."""
    if not report.scans:
        head = element("p", element("b", "geoskip"), ": the query reads no files")
        return join_children([head, sections.reasons(report.notes)])
    several = len(report.scans) > 1
    return element(
        "div",
        element("style", Markup(_asset("report.css"))),
        element("p", element("b", "geoskip"), ": ", sections.headline(report)),
        *(_short_scan(scan, several) for scan in report.scans),
        sections.reasons(report.notes),
        class_="geoskip-report",
    )


def _short_scan(scan: Scan, several: bool) -> Markup:
    tree = sections.tree(scan)
    where = ("where ", element("code", condense(scan.predicate, 240))) if scan.predicate else ()
    return element(
        "div",
        element("p", element("code", scan.short_name), f": {sections.headline(scan)}" if several else None),
        sections.read_of_all(scan),
        sections.clauses(scan),
        element("details", element("summary", *where), *tree) if tree else element("p", *where) if where else None,
        sections.reasons(scan.sentences, scan.lost),
        style="margin-top:0.6em;display:grid;gap:0.5em",
    )


def _scan(scan: Scan, is_alone: bool) -> Markup:
    tree = sections.tree(scan)
    condition = element("code", condense(scan.predicate, 1000)) if scan.predicate else None
    return element(
        "section",
        element("h2", scan.dataset.rstrip("/").rpartition("/")[2] or scan.dataset),
        element("p", element("code", scan.dataset), class_="muted"),
        None if is_alone else element("p", _sentence(sections.headline(scan)), class_="facts"),
        None if is_alone else sections.read_of_all(scan),
        _part("What each clause skips by itself", sections.clauses(scan)),
        _part(
            "The condition, vertex by vertex", tree or None,
            "As geoskip rewrote it. Each vertex with the files that it would skip if it were the whole condition.",
        ),
        _part("The condition", None if tree else condition),
        _part("Where the files are", _drawn(sections.map_figure, scan)),
        _part(
            "How the files cluster", _drawn(sections.layout_figures, scan),
            "Each line is the span of one file, from its least to its greatest value; orange files were read.",
        ),
        _part("Reasons", sections.reasons(scan.sentences, scan.lost)),
        _part(None, sections.kept_names(scan)),
    )  # fmt: skip


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _drawn(figure: Callable[[Scan], Markup | None], scan: Scan) -> Markup | None:
    """A figure of a scan, or a sentence if its metadata can no longer be read."""
    try:
        return figure(scan)
    except (OSError, GeoskipError) as error:
        return element("p", f"It cannot be drawn: {error}", class_="muted")


def _section(title: str, inside: Child) -> Markup | None:
    return element("section", element("h2", title), inside) if inside else None


def _part(title: str | None, inside: Child, note: str | None = None) -> Markup | None:
    if not inside:
        return None
    return element(
        "div", element("h3", title) if title else None, element("p", note, class_="muted") if note else None, inside
    )


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
