"""Archive of the packages of Python tasks, for workers that have only Python.

Spark unpacks an archive of ``spark.archives`` in the working folder of each executor, and a setting adds it to the
executor's ``PYTHONPATH``. The archive contains geoskip, the mappings and the distributions that both need, as installed
here. Parts of them are compiled, so the workers need the same minor version of Python and platform as the driver.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import geoskip
from geoskip.errors import InvalidSpecificationError

FOLDER = "geoskip_workers"
"""Folder to which executors unpack the archive."""
_OWN = ("geoskip", "udf_mappings")
_EXTRAS = ("agents", "h3", "spark")
"""Extras with libraries that run in workers; included if they are installed."""
_NOT_FOR_WORKERS = frozenset(["pyspark", "py4j", "rich", "geoskip"])
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|tests?|include|\.\.)/|\.(pyi|pyx|pxd|h|hpp|c|cpp)$")
_FASTEST = 1
"""Compression level: with higher ones writing takes minutes, and saves a tenth of the size."""


@dataclass(frozen=True)
class WorkerArchive:
    """An archive for workers, and the settings of a session that uses it."""

    path: Path
    packages: tuple[str, ...]
    """The included distributions, with their versions."""

    @property
    def config(self) -> dict[str, str]:
        """Settings for ``geoskip.session(config=...)`` or a builder, before the session is created."""
        return {"spark.archives": f"{self.path}#{FOLDER}", "spark.executorEnv.PYTHONPATH": f"./{FOLDER}"}

    def __str__(self) -> str:
        size = self.path.stat().st_size / 2**20
        options = " ".join(f"--conf {key}={value}" for key, value in self.config.items())
        python = "{}.{}".format(*sys.version_info[:2])
        return (
            f"{self.path}: {size:,.0f} MiB for workers with Python {python} on {platform.system()} "
            f"{platform.machine()}: {', '.join(self.packages)}\n"
            f"geoskip.session(config={self.config!r})\nspark-submit {options} ..."
        )


def worker_archive(path: str | Path | None = None, *, packages: Sequence[str] = ()) -> WorkerArchive:
    """Write an archive of geoskip and all packages that its tasks need, for the workers of a cluster.

    Print the result to see the settings. ``PYSPARK_PYTHON`` must name a Python on the workers with the driver's minor
    version; it needs no packages.

    Parameters
    ----------
    path
        The file to write. Default: ``geoskip-workers-<version>-py<version>.tar.gz`` in the current folder.
    packages
        Further installed distributions, such as those that your own functions import.

    Returns
    -------
    WorkerArchive
        Its ``config`` are the settings of a session that uses the archive.

    Raises
    ------
    InvalidSpecificationError
        For an invalid path or list of names, a package that is not installed here, and a path that does not end in
        ``.tar.gz`` or ``.tgz``.
    """
    if path is not None and not isinstance(path, str | Path):
        raise InvalidSpecificationError(f"worker_archive(path) takes the file to write, a .tar.gz, got {path!r}")
    if isinstance(packages, str) or not all(isinstance(name, str) for name in packages):
        raise InvalidSpecificationError(
            f'worker_archive(packages=) takes a list of names, as in ["h3", "shapely"], got {packages!r}'
        )
    python = "{}{}".format(*sys.version_info[:2])
    target = Path(path or f"geoskip-workers-{geoskip.__version__}-py{python}.tar.gz").absolute()
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise InvalidSpecificationError(
            f"worker_archive({str(path)!r}) writes a .tar.gz: Spark unpacks archives by the ends of their names"
        )
    found = [*distributions_for_workers(packages)]
    scratch = target.with_name(f".{target.name}.tmp")
    try:
        with tarfile.open(scratch, "w:gz", compresslevel=_FASTEST) as archive:
            for name in _OWN:
                for folder in _folders(name):
                    _add(archive, folder.parent, (file.relative_to(folder.parent) for file in folder.rglob("*")))
            for each in found:
                base = Path(str(each.locate_file("")))
                _add(archive, base, (Path(file) for file in each.files or ()))
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    names = (f"{each.metadata['Name']} {each.version}" for each in found)
    return WorkerArchive(target, (f"geoskip {geoskip.__version__}", *sorted(names, key=str.lower)))


def _add(archive: tarfile.TarFile, base: Path, files: Iterable[Path]) -> None:
    """Add files below a folder to an archive by their relative paths, except those that no worker needs."""
    for file in sorted(files):
        if not _LEFT_OUT.search(file.as_posix()) and not file.is_absolute() and (base / file).is_file():
            archive.add(base / file, file.as_posix())


def _folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]


def distributions_for_workers(packages: Sequence[str] = ()) -> Iterator[Distribution]:
    """Installed distributions that geoskip's tasks and some packages need, with their dependencies."""
    wanted = [*_requirements(distribution("geoskip"), _EXTRAS), *((name, True) for name in packages)]
    seen = set(_NOT_FOR_WORKERS)
    while wanted:
        name, needed = wanted.pop()
        plain = re.sub(r"[-_.]+", "-", name).lower()
        if plain in seen:
            continue
        seen.add(plain)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            if needed:
                raise InvalidSpecificationError(
                    f"worker_archive(packages=) takes installed distributions, and {name!r} is none: pip install "
                    f"{name}, or leave it out"
                ) from None
            continue
        yield found
        wanted += _requirements(found)


def _requirements(of: Distribution, extras: Sequence[str] = ()) -> Iterator[tuple[str, bool]]:
    """Names that a distribution requires, each with False, since those for other systems may be missing."""
    for text in of.requires or ():
        name, _, marker = text.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if extra is None or extra[1] in extras:
            yield re.split(r"[\s\[<>=!~(]", name.strip(), maxsplit=1)[0], False
