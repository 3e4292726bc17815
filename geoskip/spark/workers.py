"""The Python of a cluster's workers: packages that tasks import, and packages that are missing.

On a cluster the workers have their own Python. A job that needs a package which they lack fails after four attempts,
and its error names only one package. So a small job, which needs only the standard library, checks all packages at
once; its results are cached for the application. In local mode nothing is checked.
"""

from __future__ import annotations

import importlib
import io
import pickle
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import geoskip
from geoskip.errors import EnvironmentProblem
from geoskip.report import join_names
from geoskip.spark.worker_archive import distributions_for_workers

_MOST_TASKS = 64
_MOST_NAMED = 3
_PATIENCE = 30.0
"""Seconds for which registering functions waits for workers: a cluster may not have allocated any yet."""
_OWN = ("geoskip", "udf_mappings")
_IN_SPARK = frozenset(["pyspark", "py4j", "__main__", "__mp_main__"])
_PANDAS_UDF = frozenset(["eval:200", "eval:201", "eval:202", "eval:204"])
"""Spark's codes of functions that take pandas columns."""


def is_cluster(spark: SparkSession) -> bool:
    """Test whether Python tasks run on a cluster, not in local mode."""
    return _is_cluster(spark.sparkContext)


def _is_cluster(context: SparkContext) -> bool:
    return re.match(r"local(\[|$)", context.master or "") is None


# --- packages of a task -----------------------------------------------------------------------------------------------


def packages_of(task: Any) -> set[str]:
    """Top-level packages beyond the standard library that a worker imports to unpickle a task.

    >>> sorted(packages_of(types.SimpleNamespace()))
    []
    """
    modules: set[str] = set()
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    _Unpickler(io.BytesIO(dumps(task)), modules).load()
    return packages_of_modules(modules)


class _Unpickler(pickle.Unpickler):
    """Unpickler that records the modules it imports."""

    def __init__(self, file: io.BytesIO, modules: set[str]) -> None:
        super().__init__(file)
        self.modules = modules

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module)
        found = super().find_class(module, name)
        if module.startswith("pyspark.cloudpickle") and name == "subimport":
            return self._import_module
        return found

    def _import_module(self, name: str) -> Any:
        self.modules.add(name)
        return importlib.import_module(name)


def packages_of_modules(modules: Iterable[str]) -> set[str]:
    """Top-level packages that some modules import, followed through geoskip's own modules.

    Other packages are not followed, since installing a package installs its dependencies.
    """
    needed: set[str] = set()
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in seen or top in sys.stdlib_module_names or top in _IN_SPARK:
            continue
        seen.add(name)
        needed.add(top)
        if top in _OWN and (module := sys.modules.get(name)) is not None:
            waiting += [name.rpartition(".")[0]] if "." in name else []
            waiting += _modules_in(module)
    return needed


def _modules_in(module: types.ModuleType) -> Iterator[str]:
    """Modules to which the names in a module refer; no submodules, which other code may have imported."""
    for value in list(vars(module).values()):
        if isinstance(value, types.ModuleType) and not value.__name__.startswith(f"{module.__name__}."):
            yield value.__name__
        elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            yield getattr(value, "__module__", None) or "builtins"


def packages_of_function(implementation: str, flags: Collection[str]) -> set[str]:
    """Top-level packages that a call of a Python function needs.

    Parameters
    ----------
    implementation
        As in a :class:`geoskip.predicates.Call`: ``python:``, the module, a dot and the function's name.
    flags
        The flags of the call, with Spark's code for the kind of function.
    """
    if not implementation.startswith("python:"):
        return set()
    name = implementation.removeprefix("python:").partition("#")[0]
    parts = [] if "<" in name else name.split(".")  # a lambda or inner function is pickled by its code
    names = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
    module = next((name for name in names if name in sys.modules), None)
    found = packages_of_modules([module] if module else [])
    return found | _packages_of_kind(flags)


def _packages_of_kind(flags: Collection[str]) -> set[str]:
    return {"pandas", "pyarrow"} if not _PANDAS_UDF.isdisjoint(flags) else set()


# --- packages of the workers ------------------------------------------------------------------------------------------


@dataclass
class WorkerPython:
    """The workers' Python of one application, with the packages that were checked."""

    lacks: dict[str, str | None]
    """The problem with each package that was checked, or None."""
    about: str = ""
    """The Python and the number of workers that answered, in words."""
    unusable: str | None = None
    """The reason why no Python function can run."""
    sent: tuple[int, ...] = ()
    """Numbers of files that the driver had sent to the workers; after a change the packages are checked again."""

    def lack_of(self, packages: Collection[str]) -> str | None:
        """Part of a message with the packages that the workers lack, or None; all must have been checked."""
        if self.unusable is not None:
            return self.unusable
        lacking = [why for name in sorted(packages) if (why := self.lacks[name]) is not None]
        return f"the Python of the workers ({self.about}) lacks {join_names(lacking)}" if lacking else None

    def advice(self, packages: Collection[str]) -> str:
        """Advice to append to :meth:`lack_of`; empty if that already contains advice."""
        lacking = [name for name in sorted(packages) if self.lacks.get(name) is not None]
        return f". {way_out(lacking)}" if self.unusable is None else ""


_probed: weakref.WeakKeyDictionary[SparkContext, WorkerPython] = weakref.WeakKeyDictionary()
_probing = threading.RLock()


def worker_python(spark: SparkSession, packages: Collection[str], seconds: float | None = None) -> WorkerPython:
    """The workers' Python, after some packages have been checked.

    Raises TimeoutError if the workers have not answered within ``seconds``; None means no limit.
    """
    with _probing:
        context: Any = spark.sparkContext
        sent = (len(context._python_includes), len(context.listFiles), len(context.listArchives))
        there = _probed.get(context)
        if there is None or there.sent != sent:
            there = _probed[context] = WorkerPython({}, sent=sent)
        new = sorted(set(packages) - there.lacks.keys())
        if new and there.unusable is None:
            _probe(spark, there, new, seconds)
    return there


def lack_of_functions(spark: SparkSession, functions: Mapping[str, Any]) -> str | None:
    """Warning about registered functions, given by name, for which a cluster's workers lack packages.

    None if nothing is missing, in local mode, and if no worker answers in time.
    """
    if not functions or not is_cluster(spark):
        return None
    needed = {name: packages_of(function.func) | _packages_of_kind([f"eval:{function.evalType}"])
              for name, function in functions.items()}  # fmt: skip
    try:
        there = worker_python(spark, set().union(*needed.values()), _PATIENCE)
    except (TimeoutError, Py4JError, PySparkException):  # the next job will report it
        return None
    failing = [name for name, packages in sorted(needed.items()) if there.lack_of(packages)]
    if not failing:
        return None
    packages = set().union(*(needed[name] for name in failing))
    why = there.lack_of(packages)
    others = f" and {len(failing) - _MOST_NAMED} more functions" if len(failing) > _MOST_NAMED else ""
    return (
        f"queries that call {', '.join(failing[:_MOST_NAMED])}{others}, which geoskip has registered, will fail on "
        f"this cluster: {why}{there.advice(packages)}. All other queries run, and skip files, without that"
    )


def way_out(lacking: Collection[str] = ("geoskip",)) -> str:
    """Advice on installing missing packages on the workers of a cluster."""
    others = set(lacking).difference(_OWN)
    installed = {name: names[0] for name, names in packages_distributions().items() if name in others}
    modules = sorted(others - installed.keys())
    texts = []
    if len(modules) < len(set(lacking)):
        further = sorted(set(installed.values()) - _brought())
        given = f"packages={further}" if further else ""
        wanted = " ".join([f"'geoskip=={geoskip.__version__}'", *further])
        texts.append(
            f"geoskip.worker_archive({given}) writes an archive of it and returns the settings of a session that has "
            f"it; or install it in the Python of every worker: pip install {wanted}"
        )
    if modules:
        are = "is no installed package" if len(modules) == 1 else "are no installed packages"
        texts.append(
            f"{join_names(modules)} {are}: send the .py file, or a zip of the folder, by spark.submit.pyFiles or "
            "spark.sparkContext.addPyFile(path)"
        )
    return "; ".join(texts)


def _brought() -> set[str]:
    """Names of the distributions that come with geoskip, in its archive and by its installation."""
    try:
        return {each.metadata["Name"] for each in distributions_for_workers()}
    except PackageNotFoundError:  # geoskip is in a zip
        return set()


def worker_problem(error: BaseException) -> EnvironmentProblem | None:
    """Error about a package or Python that the workers lack; None if a job failed for another reason."""
    text, context = str(error), SparkContext._active_spark_context
    missing = re.search(r"No module named '([^']+)'", text)
    if missing is None:
        reason = _reason_of(text, context.pythonExec) if context is not None and _NO_WORKER.search(text) else None
        return None if reason is None else EnvironmentProblem(reason)
    package = missing.group(1).partition(".")[0]
    is_on_cluster = context is not None and _is_cluster(context)
    workers = "the Python workers of this cluster" if is_on_cluster else "the session's Python workers"
    mended = way_out([package])
    if not is_on_cluster and package in {*_OWN, *packages_distributions()}:
        mended = (
            "set PYSPARK_PYTHON to the Python of this driver before the session is made, or make it with "
            "geoskip.session()"
        )
    return EnvironmentProblem(f"{workers} lack the package {missing.group(1)}; {mended}")


_NO_WORKER = re.compile("Cannot run program|PYTHON_VERSION_MISMATCH")


def _probe(spark: SparkSession, there: WorkerPython, names: list[str], seconds: float | None) -> None:
    context = spark.sparkContext
    tasks = max(1, min(context.defaultParallelism, _MOST_TASKS))
    try:
        answers = _collect(context.parallelize(range(tasks), tasks).mapPartitions(_probing_task(names)), seconds)
    except TimeoutError:
        raise
    except Exception as error:
        there.unusable = _reason_of(str(error), context.pythonExec)
        if there.unusable is None:
            raise
        return
    hosts = {host for host, _, _, _ in answers}
    _, python, release, _ = answers[0]
    there.about = f"{python}, Python {release}, on {len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}"
    for name in names:
        texts = [_lack(name, found[name]) for _, _, _, found in answers]
        there.lacks[name] = next((text for text in texts if text is not None), None)


def _collect(rdd: Any, seconds: float | None) -> list[Any]:
    """Collect an RDD; after ``seconds`` cancel the job and raise TimeoutError."""
    future = rdd._jrdd.collectAsync()
    try:
        units = rdd.ctx._jvm.java.util.concurrent.TimeUnit
        batches = future.get() if seconds is None else future.get(int(seconds * 1000), units.MILLISECONDS)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.util.concurrent.TimeoutException":
            raise
        future.cancel(True)
        raise TimeoutError(f"no answer within {seconds} seconds") from error
    return [element for batch in batches for element in pickle.loads(bytes(batch))]


def _probing_task(names: list[str]) -> Callable[[Iterable[int]], Iterator[tuple[str, str, str, dict[str, Any]]]]:
    """Task that checks packages; pickled by its code, so that it needs no package itself."""

    def probe(_: Iterable[int]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        import importlib
        import importlib.util
        import platform
        import socket
        import sys

        found: dict[str, Any] = {}
        for name in names:
            try:
                spec = importlib.util.find_spec(name)
            except (ImportError, ValueError):
                spec = None
            if spec is None:
                found[name] = None
                continue
            try:
                importlib.import_module(name)
            except Exception as error:
                found[name] = ("", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"[:200])
                continue
            found[name] = (str(getattr(sys.modules[name], "__version__", "")), "")
        yield socket.gethostname(), sys.executable, platform.python_version(), found

    return probe


def _lack(name: str, found: tuple[str, str] | None) -> str | None:
    """Part of a message on a package that a worker lacks or cannot use; None if there is no problem."""
    here = _version_here(name)
    if found is None:
        return f"{name} {here}" if here else name
    release, failure = found
    if failure:
        return f"{name}, which cannot be imported there ({failure})"
    if name == "geoskip" and release != here:
        return f"geoskip {here} (it has {release})"
    if name == "numpy" and here and release and release.partition(".")[0] != here.partition(".")[0]:
        return f"numpy {here.partition('.')[0]} (it has {release})"  # pickled arrays are not compatible
    return None


def _version_here(name: str) -> str:
    if name in _OWN:
        return geoskip.__version__ if name == "geoskip" else ""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _reason_of(message: str, python: str) -> str | None:
    """Reason in an error message why the workers' Python cannot run this driver's functions, or None."""
    here = "{}.{}".format(*sys.version_info[:2])
    if "PYTHON_VERSION_MISMATCH" in message:
        other = re.search(r"version: \(?'?([\d.]+)|worker has a different version(?: of)? \(?'?([\d.]+)", message)
        there = f" {next(filter(None, other.groups()))}" if other else ""
        return (
            f"the workers run Python{there} and this driver {here}, which cannot exchange functions: let "
            f"PYSPARK_PYTHON, or spark.pyspark.python, name a Python {here} of the workers"
        )
    if re.search(r"Cannot run program|No such file or directory", message):
        return (
            f"the workers have no {python}: let PYSPARK_PYTHON, or spark.pyspark.python, name a Python {here} that is "
            "there"
        )
    return None
