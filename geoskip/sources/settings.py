"""Settings of a session: geoskip's own, and the settings of Spark that can change a value.

If one of geoskip's own settings has an invalid value, its default is used, and the report says so. The table of them in
the guide is generated (``python -m geoskip.sources.settings``).

Every Spark setting ``spark.sql.*`` is a dependency unless it is listed here as one that cannot change a value. A list
of the settings that do matter would always be incomplete. Whatever Spark evaluates (indexed expressions, defaults of
columns, text that it parses) depends on every unlisted setting, including those of extensions and of later versions of
Spark, so that an unknown setting keeps files instead of losing rows.
"""

from __future__ import annotations

import difflib
import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from geoskip.metadata import BUDGET, bytes_of

_LOG = logging.getLogger("geoskip")
PREFIX = "spark.geoskip."
_TIME = re.compile(r"(.*?)(ms|s|m|min)?$")


@dataclass(frozen=True)
class Setting:
    """A setting: its name without the prefix, its default ("" for none) and its meaning in Markdown."""

    name: str
    default: str
    meaning: str
    wanted: str
    """The accepted values, as described in errors."""
    accepts: Callable[[str], bool]
    """Test of a value without surrounding white space."""


def parse_number(text: str) -> float | None:
    """Parse a finite number, None for any other text."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _is_time(text: str) -> bool:
    found = _TIME.match(text)
    return found is not None and (parse_number(found[1]) or 0) > 0


def _is_between(least: float, most: float) -> Callable[[str], bool]:
    return lambda text: (found := parse_number(text)) is not None and least <= found <= most


def _is_one_of(*texts: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in texts


SETTINGS = (
    Setting(
        "enabled",
        "true",
        "whether queries skip files; `geoskip.enable`, `geoskip.disable` and `with geoskip.disabled(spark):` set it",
        "true or false (all but false, no, off and 0 switch it on)",
        _is_one_of("true", "false"),
    ),
    Setting(
        "planning.budget",
        "5",
        "seconds (or `500ms`, `1m`) that a query waits for geoskip's decision, a fifth of them for the evaluation of "
        "listed values; after that it reads every file",
        "a time above 0 such as 5, 5s or 500ms",
        _is_time,
    ),
    Setting(
        "audit",
        "0",
        "share of the skipped files to read again after a query, in the background, with the query's own filter; a "
        "matching row is reported in the log and in `report.lost`, and the index or mapping that skipped it is "
        "quarantined (`geoskip.quarantined()`, `geoskip.release(name)`)",
        "a share from 0 to 1 such as 0.02",
        _is_between(0, 1),
    ),
    Setting(
        "metadata.cacheSize",
        "1g",
        "estimated memory for the metadata of all datasets in this driver; beyond it the least recently used metadata "
        "are dropped, and read again when they are needed",
        "a size such as 512m",
        lambda text: bytes_of(text) is not None,
    ),
    Setting(
        "metadata.cacheTtl",
        "1",
        "for metadata on other file systems and servers: the seconds for which queries use the newest snapshot that an "
        "earlier query found, even if other drivers have written newer ones; with `0` each query looks up the "
        "newest one; snapshots written by this driver are used at once",
        "a number of seconds such as 1",
        _is_between(0, math.inf),
    ),
    Setting(
        "fingerprint.maxRechecks",
        "2000",
        "largest number of local files to skip that are checked for changes, when a query is planned and at each run; "
        "above it none is checked",
        "a number of files such as 2000",
        _is_between(0, math.inf),
    ),
    Setting(
        "workload",
        "off",
        "`on` records the conditions of the session's queries, the newest 1000 distinct ones, with a placeholder for "
        "each literal: `geoskip.workload_log(spark)` shows how often they ran and what they read; `literals` also "
        "records the literals, which `geoskip.recommend` and `geoskip.what_if` need",
        "off, on or literals",
        _is_one_of("off", "false", "on", "true", "literals"),
    ),
    Setting(
        "encryption.keyRing",
        "",
        "key ring for reading encrypted metadata, if no handle has supplied one: the path of a file, or `env:` and the "
        "name of an environment variable",
        "the path of a file, or env: and a name",
        lambda text: True,
    ),
)


def default_of(name: str) -> str:
    """Look up the default of a setting by its name without the prefix."""
    return next(setting.default for setting in SETTINGS if setting.name == name)


def settings_table() -> str:
    """Write all settings as a Markdown table, one row each."""
    rows = [
        f"| `{PREFIX}{setting.name}` | {f'`{setting.default}`' if setting.default else 'none'} | {setting.meaning} |"
        for setting in SETTINGS
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows, ""])


# --- values of a session ----------------------------------------------------------------------------------------------


def cache_ttl(settings: Mapping[str, Any]) -> float:
    """Seconds for which queries may use a cached snapshot of a remote store."""
    return _number(settings, "metadata.cacheTtl")


def max_rechecks(settings: Mapping[str, Any]) -> float:
    """Maximum number of skipped local files that a query checks for changes."""
    return _number(settings, "fingerprint.maxRechecks")


def apply_cache_size(settings: Mapping[str, Any]) -> None:
    """Apply the session's setting for the size of this process's metadata cache."""
    size = bytes_of(settings.get(PREFIX + "metadata.cacheSize") or "")
    if size is not None and size != BUDGET.limit:
        BUDGET.limit = size


def setting_problems(settings: Mapping[str, Any]) -> Iterable[str]:
    """Sentences on unknown settings and invalid values.

    >>> list(setting_problems({"spark.geoskip.audit": "2%", "spark.geoskip.planning.budget": "500ms"}))
    ["spark.geoskip.audit should be a share from 0 to 1 such as 0.02, got '2%'"]
    >>> list(setting_problems({"spark.geoskip.budget.planning": "5", "spark.geoskip.enabled": "yes"}))[1]
    'spark.geoskip.budget.planning is no setting of geoskip; the nearest is spark.geoskip.planning.budget'
    """
    for setting in SETTINGS:
        value = settings.get(PREFIX + setting.name)
        if value and not setting.accepts(str(value).strip()):
            yield _log_once(f"{PREFIX}{setting.name} should be {setting.wanted}, got {value!r}")
    names = [setting.name for setting in SETTINGS]
    for name in sorted(settings.keys() - {PREFIX + name for name in names}):
        if name.startswith(PREFIX):
            near = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), names, 1, 0.0)
            yield _log_once(f"{name} is no setting of geoskip; the nearest is {PREFIX}{near[0]}")


@lru_cache(1000)
def _log_once(text: str) -> str:
    """Log a text once, and return it."""
    _LOG.warning("%s", text)
    return text


def _number(settings: Mapping[str, Any], name: str) -> float:
    found = parse_number(settings.get(PREFIX + name) or "")
    return float(default_of(name)) if found is None or found < 0 else found


# --- Spark's settings -------------------------------------------------------------------------------------------------

CHANGED = "spark.sql.*"
"""Key of a request's settings for the JSON of those that differ from their defaults."""
SETTINGS_OF = "settings of "
"""Prefix of the name of a recorded dependency on settings; the scopes follow."""
EXPRESSIONS = "expressions"
PYTHON = "python"
FORMATS = ("parquet", "orc", "avro")

# settings that are part of the recorded expression, or that are compared individually
_CARRIED = """
(session.timeZone|ansi.enabled|caseSensitive|avro.datetimeRebaseModeInRead)
parquet.(binaryAsString|datetimeRebaseModeInRead|fieldId.read.enabled|int96.*(?<!InWrite))
"""

# settings that affect how plans are made, run, cached, shown and logged, and how files are listed, split and written;
# names and SQL text are resolved before an expression is recorded
_NEUTRAL = """
(adaptive|analyzer|artifact|bucketing|cache|catalog|cbo|classic|cli|codegen|columnVector|connect|crossJoin|dataSource
|dataframeCache|debug|dropDuplicates|error|event|exchange|expressionTreeChangeLog|extensions|fileSource|generatedColumn
|hive|inMemoryColumnarStorage|inMemoryTableScanStatistics|join|kafka|lateralColumnAlias|lazySetOperatorOutput|limit
|listagg|maven|nameResolutionLog|objectHashAggregate|pipelines|planChangeLog|planChangeValidation|planner|python
|redaction|repl|scriptTransformation|scripting|sort|sources|statistics|streaming|subexpressionElimination|subquery
|thriftServer|thriftserver|timeTravel|truncateTable|tvf|ui|variable|view|warehouse|window)\\..*
(addPartitionInBatch|broadcast|cartesianProductExec|cteRe|insert|maxBroadcast|optimizeNullAware|requireAllClusterKeys
|resultQueryStage|session.localRelation|sessionWindow|shuffle|shuffled|sortMergeJoin|timeTravel|windowExec).*
ansi.(doubleQuotedIdentifiers|enforceReservedKeywords|relationPrecedence)
(allowNamedFunctionArguments|alwaysInlineCommonExpr|assumeAnsiFalseIfNotPersisted.enabled|autoBroadcastJoinThreshold)
(binByRelationOperator.enabled|catalogImplementation|constraintPropagation.enabled|dataFrameQueryContext.enabled|debug)
(defaultCacheStorageLevel|defaultCatalog|defaultPath|defaultSizeInBytes|defaultUrlStreamHandlerFactory.enabled)
(dropTableOnView.enabled|enforceTypeCoercionBeforeUnionDeduplication.enabled|extendedExplainProviders|extensions)
(filesourceTableRelationCacheSize|globalTempDatabase|groupByAliases|groupByOrdinal|leafNodeDefaultParallelism)
(lightweightPlanChangeValidation|maxConcurrentOutputFileWriters|maxMetadataStringLength|maxPlanStringLength)
(maxSinglePartitionBytes|mergeNestedTypeCoercion.enabled|metadataCacheTTLSeconds|operatorPipeSyntaxEnabled)
(orderByOrdinal|orderingAwareLimitOffset|path.enabled|pivotMaxValues|planChangeValidation|protobuf.descriptorCacheSize)
(prioritizeOrdinalResolutionInSort.enabled|queryExecutionListeners|retainGroupColumns|runSQLOnFiles)
(selfJoinAutoResolveAmbiguity|stableDerivedColumnAlias.enabled|stackTracesInDataFrameContext|storeAssignmentPolicy)
(reflect.allowList|restrictedMode.enabled|transposeMaxValues|unionOutputPartitioning|useCommonExprIdForAlias)
defaultColumn.(allowedProviders|enabled)
execution.(broadcastHashJoin|pushDownLocalSort|rangeExchange)\\..*
execution.(bypassPartialAggregation|combineAdjacentAggregation|fastFailOnFileFormatOutput|interruptOnCancel)
execution.(pushDownLocalSort|removeRedundantProjects|removeRedundantSorts|replaceHashWithSortAgg|reuseSubquery)
execution.(sortBeforeRepartition|topKSortFallbackThreshold|useHashAggregateExec|useObjectHashAggregateExec)
execution.(usePartitionEvaluator|arrow.enabled|arrow.fallback.enabled|arrow.sparkr.enabled|arrow.cache.prefetch.enabled)
execution.arrow.(localRelationThreshold|pyspark.enabled|pyspark.fallback.enabled|pyspark.selfDestruct.enabled)
files.(ignore|max|min|openCostInBytes).*
legacy.((db2|hive|jdbc|mssqlserver|mysql|oracle|postgres|bucketedTableScan)\\..*|allowNonEmptyLocationInCTAS|useV1Command
|createHiveTableByDefault|keepCommandOutputSchema|sessionInitWithConfigDefaults|setCommandRejectsSparkCoreConfs)
optimizer.(decorrelate|dynamicPartitionPruning|mergeSubplans|runtime|singleTaskExecution|optimizeOneRowRelation).*
optimizer.(avoid|canChangeCachedPlan|collapseProject|datasourceV2|exclude|expression|inSet|max|nested|prune|pull|push).*
optimizer.(disableHints|enable(?!Csv|Json)|insertMapSort|metadataOnly|optimize|plannedWrite|preserveAlias|propagate).*
optimizer.(replaceExcept|scalarSubquery|serializer|windowGroupLimit|wrapExists).*
parser.(eagerEvalOfUnresolvedInlineTable|manageParserCaches|parserDfaCache.*)
(parquet|orc|avro).(aggregatePushdown|filterPushdown.*|columnar.*BatchSize|compression.codec|mergeSchema|.*InWrite)
(parquet|orc).enable.*VectorizedReader
parquet.(fieldId.write.enabled|inferTimestampNTZ.enabled|output.*|pushdown.*|recordLevelFilter.enabled|variant.*|write.*)
parquet.respectSummaryFiles
avro.(deflate.level|xz.level|zstandard.*|schemaUrlAllowedSchemes)
variant.(forceShreddingSchemaForTest|inferShreddingSchema|shredding.*|writeShredding.enabled)
"""

# settings that affect only the values of Python functions
_PYTHON = """
(pyspark|experimental).*
execution.(arrow|pandas|pyspark|python|pythonUDF|pythonUDTF|udf)\\..*
legacy.execution\\..*
"""


def _pattern(lines: str) -> re.Pattern[str]:
    joined = re.sub(r"\n\|", "|", lines.strip())
    return re.compile("|".join(f"(?:{line})" for line in joined.splitlines()))


_KINDS = {"carried": _pattern(_CARRIED), "neutral": _pattern(_NEUTRAL), PYTHON: _pattern(_PYTHON)}
_SECRET = re.compile("(?i)secret|password|passwd|token|credential|access.?key")


@lru_cache(4096)
def kind_of(name: str) -> str | None:
    """Kind of a setting by its full name; None for any other, on which expressions depend.

    >>> [kind_of(f"spark.sql.{name}") for name in ("shuffle.partitions", "pyspark.udf.profiler", "of.tomorrow")]
    ['neutral', 'python', None]
    """
    short = name.removeprefix("spark.sql.")
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(short)), None)


def of_scopes(text: str | None, scopes: Iterable[str]) -> str:
    """Settings of some scopes as JSON; ``text`` has all settings that differ from their defaults.

    The scopes are a format, for the settings of its reader; ``python``, for settings of Python functions only; and
    ``expressions``, for all other settings.

    >>> of_scopes('{"spark.sql.orc.impl": "hive", "spark.sql.mapKeyDedupPolicy": "LAST_WIN"}', ["orc"])
    '{"spark.sql.orc.impl": "hive"}'
    >>> of_scopes('{"spark.sql.of.tomorrow": "x", "spark.sql.catalog.db.password": "y"}', [EXPRESSIONS])
    '{"spark.sql.of.tomorrow": "x"}'
    """
    return _of_scopes(text or "{}", frozenset(scopes))


@lru_cache(512)
def _of_scopes(text: str, scopes: frozenset[str]) -> str:
    return json.dumps({name: value for name, value in json.loads(text).items() if _counts(name, scopes)})


def _counts(name: str, scopes: frozenset[str]) -> bool:
    kind = kind_of(name)
    if kind in ("neutral", "carried") or _SECRET.search(name):
        return False
    if kind == PYTHON:
        return PYTHON in scopes
    family = re.match(r"spark\.sql\.(?:legacy\.)?(\w+)\.", name)
    if family and family[1] in FORMATS:
        return family[1] in scopes
    return EXPRESSIONS in scopes


def recorded_settings(text: str | None) -> str:
    """All settings of any scope, for the metadata of a dataset."""
    return of_scopes(text, (EXPRESSIONS, PYTHON, *FORMATS))


def values_of(text: str | None) -> Mapping[str, str]:
    """Recorded settings by name."""
    found: Mapping[str, str] = json.loads(text or "{}")
    return found


def settings_difference(then: str, now: str) -> str | None:
    """Sentence on the first setting that differs, or None.

    >>> settings_difference('{"spark.sql.icu.caseMappings.enabled": "false"}', "{}")
    'it was built with spark.sql.icu.caseMappings.enabled=false, the session has its default'
    """
    if then == now:
        return None
    built, here = values_of(then), values_of(now)
    for name in sorted(built.keys() | here.keys()):
        if built.get(name) != here.get(name):
            was = f"{name}={built[name]}" if name in built else f"the default of {name}"
            return f"it was built with {was}, the session has {here.get(name, 'its default')}"
    return None


# --- Spark without a session ------------------------------------------------------------------------------------------

PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_ASSUMED = "4.0.0"
"""Version of Spark if none is installed."""


@cache
def spark_version() -> str:
    """Version of the installed PySpark, without importing it."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return _ASSUMED


def default_settings(spark: str) -> dict[str, str | None]:
    """Spark's default settings for reading Parquet, by Spark version.

    >>> default_settings("3.5.4")["spark.sql.parquet.datetimeRebaseModeInRead"]
    'EXCEPTION'
    """
    mode = "EXCEPTION" if spark.startswith("3.") else "CORRECTED"
    return {
        "spark.sql.caseSensitive": "false",
        "spark.sql.parquet.int96RebaseModeInRead": mode,
        "spark.sql.parquet.datetimeRebaseModeInRead": mode,
        "spark.sql.parquet.binaryAsString": "false",
        "spark.sql.parquet.int96AsTimestamp": "true",
        "spark.sql.parquet.int96TimestampConversion": "false",
        "spark.sql.legacy.parquet.nanosAsLong": "false",
        CHANGED: "{}",
    }


if __name__ == "__main__":
    print(settings_table(), end="")
