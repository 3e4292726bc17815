"""Build the site of the documentation in ``site/``: the README, the guides and the reference of all public names.

The pages are those of the repository, under the same relative paths, so that their links lead to the same places. The
reference is made of docstrings. Whatever Sphinx warns of, such as a link that leads nowhere, is an error. The site
needs no network and no server: open ``site/index.html``.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

import geoskip

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
PAGES = ("README.md", "CHANGELOG.md", "LICENSE", "udf_mappings/*.*", "datasets/*.md", "examples/**/*.*")
GROUPS = {
    "Sessions and datasets": r"spark\.(session|dataset|st_functions|statement\w*)",
    "Indexes": r"indexes",
    "Reports": r"geoskip|report|diagnosis|spark\.(reports|diagnosis|why_not)",
    "Without Spark": r"engines|sources",
    "Mappings": r"registry|checking",
    "Layouts": r"layout",
    "Indicators and advice": r"advisor|spark\.advisor",
    "Keys": r"stores",
    "Errors": r"errors",
}
"""Pages of the reference, and the modules whose public names each has; the first has what fits nowhere else."""
MODULES = {"Errors": ("errors",), "Mappings": ("predicates", "clauses"), "Keys": ("stores",)}
"""Modules that are documented as a whole, by the page that has them."""

CONF = {
    "project": "geoskip",
    "author": "The geoskip developers",
    "copyright": "The geoskip developers, Apache License 2.0",
    "release": geoskip.__version__,
    "html_theme": "furo",
    "html_title": f"geoskip {geoskip.__version__}",
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "napoleon_google_docstring": False,
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "myst_enable_extensions": ["html_image"],
    "myst_heading_anchors": 3,
    "myst_url_schemes": ["http", "https"],
    "autodoc_default_options": {"members": True, "member-order": "bysource", "show-inheritance": True},
    "autodoc_typehints_format": "short",
    "python_maximum_signature_line_length": 88,
    "exclude_patterns": ["examples/*.ipynb"],
    "suppress_warnings": ["ref.python", "toc.not_included", "misc.highlighting_failure"],
}


def main() -> int:
    """Build the site anew; the exit status is that of Sphinx."""
    shutil.rmtree(SITE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        for pattern in PAGES:
            for page in ROOT.glob(pattern):
                copy = source / page.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(page, copy)
        (source / "reference").mkdir()
        for title, text in reference().items():
            (source / "reference" / f"{_slug(title)}.rst").write_text(text, "utf-8")
        (source / "index.rst").write_text(contents(), "utf-8")
        doctrees = Path(scratch) / "doctrees"
        site = Sphinx(source, None, SITE, doctrees, "html", CONF, status=None, warning=sys.stderr, warningiserror=True)
        site.build()
        return site.statuscode


def contents() -> str:
    """The first page: the README, and the lists of guides and of the reference at the side."""
    guides = re.findall(r"^\| \[[^]]+\]\((examples/guides/\w+)\.md\)", (ROOT / "README.md").read_text(), re.MULTILINE)
    groups = {
        "Guides": guides,
        "Reference": [f"reference/{_slug(title)}" for title in GROUPS],
        "More": ["udf_mappings/README", "CHANGELOG", "datasets/LICENSES"],
    }
    lists = "".join(
        f".. toctree::\n   :hidden:\n   :caption: {caption}\n\n" + "".join(f"   {page}\n" for page in pages) + "\n"
        for caption, pages in groups.items()
    )
    return f".. include:: README.md\n   :parser: myst_parser.sphinx_\n\n{lists}"


def reference() -> dict[str, str]:
    """The text of each page of the reference, by its title; every public name is on one."""
    pages = dict.fromkeys(GROUPS, "")
    for name in sorted(geoskip.__all__, key=str.lower):
        value = getattr(geoskip, name)
        module = value.__module__.removeprefix("geoskip.")  # of geoskip.report it is geoskip itself
        fitting = (title for title, modules in GROUPS.items() if re.match(rf"({modules})(\.|$)", module))
        title = next(fitting, next(iter(GROUPS)))
        pages[title] += f".. auto{'class' if isinstance(value, type) else 'function'}:: geoskip::{name}\n\n"
    for title, modules in MODULES.items():
        pages[title] += "".join(f".. automodule:: geoskip.{module}\n\n" for module in modules)
    return {title: f"{title}\n{'=' * len(title)}\n\n{text}" for title, text in pages.items()}


def _slug(title: str) -> str:
    return title.lower().replace(" ", "_")


if __name__ == "__main__":
    sys.exit(main())
