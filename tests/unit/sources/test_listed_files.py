"""Listings, and the comparison of a file with a later moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from geoskip.errors import InvalidSpecificationError
from geoskip.sources.listed_files import (
    FileListing,
    ListedFile,
    after_clock_tick,
    glob_pattern,
    list_again,
    local_etag,
    reason_of_change,
    shared_folder,
)

EARLIER = int(time.time() - 1000) * 1000


def listed(path: Path) -> ListedFile:
    found = os.stat(path)
    return ListedFile(f"file:{path}", found.st_size, found.st_mtime_ns // 1_000_000)


def written(path: Path, text: str, mtime: int = EARLIER) -> ListedFile:
    path.write_text(text)
    os.utime(path, ns=(mtime * 1_000_000, mtime * 1_000_000))
    return listed(path)


def listing(*files: ListedFile) -> FileListing:
    return FileListing("".join(f"{file.size} {file.mtime} {file.uri}\n" for file in files))


def test_only_files_that_differ_are_listed_again(tmp_path: Path) -> None:
    same, longer, later, gone = (written(tmp_path / name, "a") for name in ("same", "longer", "later", "gone"))
    now = [written(tmp_path / "longer", "ab"), written(tmp_path / "later", "a", EARLIER + 1)]
    (tmp_path / "gone").unlink()
    files = (same, longer, later, gone)
    assert list_again(files, lambda: listing(same, *now)) == {file.uri: file for file in (same, *now)}
    assert list_again(files[:1], lambda: pytest.fail("not needed")) == {same.uri: same}
    remote = ListedFile("s3a://b/x", 1, EARLIER)
    assert list_again([remote], lambda: listing(ListedFile("s3a://b/x", 2, EARLIER)))[remote.uri].size == 2


def test_a_file_that_changes_within_the_clock_tick_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    fresh = written(tmp_path / "x", "a", int(now * 1000) - 5)
    monkeypatch.setattr(time, "sleep", lambda seconds: written(tmp_path / "x", "ab", fresh.mtime))
    assert after_clock_tick([fresh], lambda: listing(listed(tmp_path / "x"))) == [listed(tmp_path / "x")]
    assert listed(tmp_path / "x").size == 2
    old = written(tmp_path / "old", "a")
    assert after_clock_tick([old], lambda: pytest.fail("not needed")) == [old]


def test_reasons_of_change(tmp_path: Path) -> None:
    file = written(tmp_path / "x", "a")
    etag = local_etag(str(tmp_path / "x"))
    future = written(tmp_path / "y", "a", int(time.time() * 1000) + 100_000)
    remote = ListedFile("s3a://b/x", 1, EARLIER, "tag")
    recent = ListedFile("s3a://b/y", 1, int(time.time() * 1000) - 1000)
    assert reason_of_change(file, file, etag) is None
    assert reason_of_change(remote, remote, "tag") is None
    assert "vanished" in (reason_of_change(file, None, etag) or "")
    assert "changed" in (reason_of_change(file, ListedFile(file.uri, 1, EARLIER + 1), etag) or "")
    assert "changed" in (reason_of_change(remote, ListedFile("s3a://b/x", 1, EARLIER, "other"), "tag") or "")
    assert "future" in (reason_of_change(future, future, local_etag(str(tmp_path / "y"))) or "")
    assert "future" in (reason_of_change(recent, recent, None) or "")
    written(tmp_path / "x", "b")  # of the same size and time
    assert "changed" in (reason_of_change(file, file, etag) or "")


def test_lines_of_a_listing() -> None:
    found = FileListing("1 2 file:/a b/x\n3 4:t:1 file:/é\n5 6: file:/c\0d\n")
    files = [ListedFile("file:/a b/x", 1, 2), ListedFile("file:/é", 3, 4, "t:1"), ListedFile("file:/c\nd", 5, 6)]
    assert [*found] == files
    assert [column.to_pylist() for column in found.columns] == [
        ["file:/a b/x", "file:/é"],
        [1, 3],
        [2, 4],
        [None, "t:1"],
    ]
    assert (found.unnameable(), found.folders) == (["file:/c\nd"], {"file:/a b", "file:"})
    assert found.select(["file:/é", "file:/none", "file:/a b/x"]) == files[:2]
    for other, folders in (("a/y", {"file:/a"}), ("b/y", {"file:/a", "file:/b"}), ("a/c/y", {"file:/a", "file:/a/c"})):
        assert FileListing(f"1 2 file:/a/x\n1 2 file:/{other}\n").folders == folders


def test_the_file_that_gives_the_schema_is_the_first_in_javas_order() -> None:
    names = {"a\nb": "a", "\U0001f600\n\uff5e": "\U0001f600", "a\n_metadata": None, "": None}
    for text, first in names.items():
        found = FileListing("".join(f"1 2 file:/{name}\n" for name in text.split())).schema_file()
        assert (found and found.uri) == (first and f"file:/{first}")


def test_one_dataset_has_one_file_system() -> None:
    with pytest.raises(InvalidSpecificationError, match="cannot span"):
        shared_folder(["s3a://a/x", "s3a://b/x"])


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("/d/a,b", "/d/a,b", True),
        ("/d/a,b", "/d/a", False),
        ("/d/a}", "/d/a}", True),
        ("/d/[ab]", "/d/b", True),
        ("/d/[!ab]", "/d/b", False),
        ("/d/[^ab]", "/d/c", True),
        ("/d/[ab", "/d/[ab", True),
        ("/d/{a,b{c,d}}/*", "/d/bd/x", True),
        ("/d/{a,b{c,d}}/*", "/d/bcd/x", False),
        ("/d/?", "/d//", False),
        ("/d/*", "/d/a/b/c.parquet", True),
        ("/d/[^ab]", "/d/a", False),
        ("/d/[a-c]x", "/d/bx", True),
        (r"/d/\*", "/d/*", True),
        (r"/d/\*", "/d/a", False),
        ("/d/a,b}.(c)", "/d/a,b}.(c)", True),
        ("/d/[b-a]", "/d/a", False),
        ("/d/[z-a]", "/d/z", False),
        ("/d/{a", "/d/a", False),
    ],
)
def test_paths_that_a_glob_matches(glob: str, path: str, matches: bool) -> None:
    assert (glob_pattern(glob).fullmatch(path) is not None) == matches


def test_a_listing_is_current_while_its_folders_have_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    files = [written(tmp_path / name, "a") for name in ("x", "p=1/y")]
    root, found = f"file:{tmp_path}", listing(*files)

    def is_current() -> bool:
        return found.is_current(root, [root])

    assert is_current()
    for hidden in ("_geoskip", ".z.crc", "z._COPYING_", "p=1/_SUCCESS"):
        written(tmp_path / hidden, "a")
    written(tmp_path / "empty", "")  # Spark reads no empty file
    assert is_current()
    for name, text, mtime in (("p=1/y", "ab", EARLIER), ("p=1/y", "a", EARLIER + 1), ("p=1/z", "a", EARLIER)):
        written(tmp_path / name, text, mtime)
        assert not is_current()
        (tmp_path / "p=1/z").unlink(missing_ok=True)
        written(tmp_path / "p=1/y", "a")
        assert is_current()
    (tmp_path / "p=2").mkdir()
    assert not is_current()
    (tmp_path / "p=2").rmdir()
    (tmp_path / "p=1/y").unlink()
    assert not is_current()
    assert not listing(ListedFile("s3a://b/x", 1, EARLIER)).is_current("s3a://b", ["s3a://b"])
    assert not listing().is_current(f"{root}/gone", [f"{root}/gone"])


def test_listings_of_single_files_are_current_while_these_are_unchanged(tmp_path: Path) -> None:
    file = written(tmp_path / "x", "a")
    root = f"file:{tmp_path}"
    assert listing(file).is_current(root, [file.uri])
    written(tmp_path / "x", "ab")
    assert not listing(file).is_current(root, [file.uri])
