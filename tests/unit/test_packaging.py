"""The wheel and the source distribution: what they hold, and what their page on a package index says."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import geoskip
from tests.support.readme import GUIDES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
HOME = PROJECT["project"]["urls"]["Homepage"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, as ``make test-wheel`` builds them."""
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", place], cwd=ROOT, check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """The files of the wheel."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    """What the wheel says of itself."""
    return message_from_bytes(wheel[f"geoskip-{geoskip.__version__}.dist-info/METADATA"])


def test_the_wheel_holds_the_two_packages_with_their_types_and_licences(wheel: dict[str, bytes]) -> None:
    info = f"geoskip-{geoskip.__version__}.dist-info"
    assert {name.partition("/")[0] for name in wheel} == {"geoskip", "udf_mappings", info}
    assert {"geoskip/py.typed", "udf_mappings/py.typed", "geoskip/spark/jvm/GeoskipRule.java"} <= wheel.keys()
    data = {name for name in wheel if name.endswith(".parquet")}
    assert data == {"geoskip/plotting/borders.parquet"}
    assert b"public domain" in wheel[f"{info}/licenses/geoskip/plotting/LICENSE.borders"]
    assert wheel[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_holds_what_tests_need(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        *("CHANGELOG.md", "README.md", "LICENSE", "Makefile", "constraints.txt", ".ci/test-wheel"),
        *("datasets/LICENSES.md", "datasets/zipcodes.parquet", "examples/guides/settings.md", "tests/conftest.py"),
    ):
        assert name in names, name
    assert not {name for name in names if name.startswith((".git/", ".venv")) or name == ".git"}


def test_spark_is_an_extra_with_an_upper_bound(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    assert {re.split(r"[<>=]", line)[0] for line in required if "extra" not in line} == {
        *("numpy", "pyarrow", "pyproj", "rapidfuzz", "shapely")
    }
    assert "pyspark<5,>=3.5; extra == 'spark'" in required


def test_links_and_pictures_of_the_long_description_are_absolute(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text)
    assert len(links) > 20
    raw = HOME.replace("github.com", "raw.githubusercontent.com")
    for link in map("".join, links):
        assert link.startswith("https://"), link
        for start in (f"{HOME}/blob/main/", f"{raw}/main/"):
            page = link.removeprefix(start).partition("#")[0]
            assert not link.startswith(start) or (ROOT / page).exists(), link


def test_the_project_has_one_address() -> None:
    for page in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        text = (ROOT / page).read_text("utf-8").replace("raw.githubusercontent.com", "github.com")
        assert {f"https://{found}" for found in re.findall(r"github\.com/[\w-]+/geoskip", text)} <= {HOME}


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "https://keepachangelog.com" in text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[0] == "[Unreleased]"
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert set(versions) == set(re.findall(r"^\[(.+?)\]: https://", text, re.MULTILINE))


def test_the_site_has_every_guide_and_every_public_name() -> None:
    """What Sphinx makes of it, links included, is checked by ``make docs``."""
    site = runpy.run_path(str(ROOT / ".ci" / "docs.py"))
    lists = site["contents"]().split()
    assert {f"examples/guides/{guide.stem}" for guide in GUIDES} <= set(lists)
    pages = site["reference"]()
    named = re.findall(r"auto(?:class|function):: geoskip::(\w+)", "".join(pages.values()))
    assert sorted(named) == sorted(geoskip.__all__)
    assert all("::" in text for text in pages.values())
