"""Dependencies of an index, recorded when it is built and compared with each query.

An index on a plain Parquet column depends on the column's type and on the resolution of names. An index on an
expression, or over text files, also depends on Spark's version and on every setting that can change a value
(:mod:`geoskip.sources.settings`). ANSI mode and time zone are part of the expression and are compared with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from geoskip.indexes.base import definition
from geoskip.metadata import Header, IndexEntry
from geoskip.predicates import Call, Cast, Column, IsNull, Predicate, children, columns_of, walk
from geoskip.sources.column_names import parts_of_name
from geoskip.sources.settings import CHANGED, EXPRESSIONS, FORMATS, PYTHON, SETTINGS_OF, of_scopes, settings_difference
from geoskip.sources.text_records import PRUNING, reason_csv_declined, reason_of_limits, twofold_record
from geoskip.stores.log_files import local_path

Json = Mapping[str, Any]

DEFAULT_OF = "default of "
"""Prefix of existence defaults, which are read from older files: ALTER TABLE ... ADD COLUMN c INT DEFAULT 5."""
ID_OF = "field id of "
"""Prefix of Parquet field ids, by which Spark finds columns if a schema has ids."""
PLACE_OF = "place of "
"""Prefix of the positions of columns in the schema, for formats with files that may lack names."""
DEFINITION_OF = "definition of "
"""Prefix of index types; the value identifies the code that creates their summaries."""

_PARQUET = (
    "spark.sql.parquet.binaryAsString",
    "spark.sql.parquet.int96AsTimestamp",
    "spark.sql.legacy.parquet.nanosAsLong",
)
_TIMES = (
    "spark.sql.parquet.int96RebaseModeInRead",
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.int96TimestampConversion",
)
_SESSION_ZONE = "spark.sql.session.timeZone"
_JVM_ZONE = "the JVM's time zone"
_PARTIAL = "spark.sql.json.enablePartialResults"
_POSITIONAL = "orc.force.positional.evolution"
_CALENDARS = ("orc.proleptic.gregorian", "orc.proleptic.gregorian.default")
_LONGEST_LINE = "mapreduce.input.linerecordreader.line.maxlength"  # Hadoop's reader skips longer lines
_AVRO = ("spark.sql.avro.datetimeRebaseModeInRead", "avro.mapred.ignore.inputs.without.extension")
PARQUET_READERS = ("Parquet", "GeoParquet", "DeltaParquet", "HoodieFileGroupReaderBasedParquet")
"""Spark's formats that read Parquet files."""
_PARQUET_OPTIONS = ("datetimerebasemode", "int96rebasemode")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEUTRAL_OPTIONS = _words("""
    path paths basepath inferschema samplingratio mergeschema pathglobfilter recursivefilelookup modifiedbefore
    modifiedafter ignorecorruptfiles ignoremissingfiles serialization.format
""")
# options with values that Spark reads case-insensitively
_WORDS = _words("""
    allowbackslashescapinganycharacter allowcomments allownonnumericnumbers allownumericleadingzeros
    allowsinglequotes allowunquotedcontrolchars allowunquotedfieldnames columnpruning dropfieldifallnull
    enforceschema header ignoreleadingwhitespace ignoretrailingwhitespace mode multiline preferdate prefersdecimal
    primitivesasstring wholetext
""")
_DEFAULTS = {
    "header": "false", "mode": "permissive", "multiline": "false", "preferdate": "true", "wholetext": "false"
}  # fmt: skip
_FIELDS, _ELEMENTS = "getarraystructfields", ("getarrayitem", "element_at")  # r.z and r.z[0] of an array r of structs
# functions that depend on tables of the JDK: case mappings, locales, time zones
_JDK = frozenset(["upper", "lower", "initcap", "rlike", "regexp_replace", "regexp_extract", "translate", "collate"])


@dataclass(frozen=True)
class Reader:
    """Reader of files in Spark: the FileFormat's class, options, settings, and the schema as JSON."""

    file_format: str
    options: Mapping[str, str]
    settings: Mapping[str, str | None]
    schema: str

    def is_of(self, *formats: str) -> bool:
        """Test whether the format is one of the given ones, such as ``"Orc"`` for ``OrcFileFormat``.

        >>> Reader("org.x.OrcFileFormat", {}, {}, "").is_of("Orc", "Avro")
        True
        """
        return self.file_format.rpartition(".")[2].removesuffix("FileFormat") in formats

    @property
    def parses_text(self) -> bool:
        """Test whether the format parses text, so that the options define the rows."""
        return self.is_of("CSV", "Json", "Text")

    @property
    def is_case_sensitive(self) -> bool:
        """Test whether names that differ only in case name different columns."""
        return str(self.settings.get("spark.sql.caseSensitive")).lower() == "true"

    def matching_options(self) -> dict[str, str]:
        """Options that can change a value, by lower-case name.

        >>> Reader("x.ParquetFileFormat", {"mergeSchema": "true", "datetimeRebaseMode": "A"}, {}, "").matching_options()
        {'datetimerebasemode': 'A'}
        >>> options = {"header": "True", "multiLine": "FALSE", "nullValue": "True"}
        >>> Reader("x.CSVFileFormat", options, {}, "").matching_options()
        {'header': 'true', 'nullvalue': 'True'}
        """
        lowered = {name.lower(): value for name, value in self.options.items()}
        lowered = {name: value.lower() if name in _WORDS else value for name, value in lowered.items()}
        if self.parses_text or self.is_of("Avro"):
            matter = {name: value for name, value in lowered.items() if name not in _NEUTRAL_OPTIONS}
            return {name: value for name, value in matter.items() if value != _DEFAULTS.get(name)}
        return {name: value for name, value in lowered.items() if name in _PARQUET_OPTIONS or name.startswith("orc.")}

    @property
    def rebases(self) -> bool:
        """Test whether times are rebased from the Julian calendar, which uses the JVM's time zone."""
        modes = [value for name, value in self.settings.items() if "RebaseModeInRead" in name]
        modes += [value for name, value in self.options.items() if name.lower() in _PARQUET_OPTIONS]
        return any(str(value).upper() == "LEGACY" for value in modes)

    def positions(self, columns: Iterable[str]) -> dict[str, str]:
        """Positions of columns in the schema, for formats that may find columns by position.

        In CSV a column of corrupt records has no position, so the position includes a digest of the names before the
        column.
        """
        by_order = self.is_of("CSV")
        if not self.schema or not (by_order or self.is_of("Orc")):
            return {}
        names = [field["name"].lower() for field in json.loads(self.schema)["fields"]]
        found = {}
        for column in columns:
            numbers = [number for number, name in enumerate(names) if name == column]
            before = hashlib.sha256("\n".join(names[: max(numbers, default=0)]).encode()).hexdigest()[:8]
            found[column] = f"{numbers} after {before}" if by_order else str(numbers)
        return found


def reason_declined(reader: Reader) -> str | None:
    """Reason why files read in this way cannot be indexed, or None.

    For maps in JSON: if a value cannot be converted, Spark reads the map's remaining keys as columns.

    >>> reason_declined(Reader("x.CSVFileFormat", {"mode": "dropMalformed"}, {}, ""))
    'with mode=DROPMALFORMED the rows of a file depend on the columns that a query reads'
    """
    options = reader.matching_options()
    if options.get("mode", "").upper() == "DROPMALFORMED":
        return "with mode=DROPMALFORMED the rows of a file depend on the columns that a query reads"
    if reader.is_of("CSV"):
        return reason_csv_declined(options, reader.settings.get(PRUNING))
    if reader.is_of("Json"):
        if str(reader.settings.get(_PARTIAL, "true")).lower() == "false":
            return f"with {_PARTIAL}=false the rows of a file depend on the columns that a query reads"
        if (why := reason_of_limits(options)) is not None:
            return why
        if re.search(r'"valueType":(?!"string")', reader.schema):
            return "with maps of other values than strings what a column holds depends on the columns read beside it"
        return _reason_of_whole_records(reader.schema)
    if reader.is_of("Avro") and "avroschemaurl" in options:
        return "with avroSchemaUrl values depend on a schema that may change; give it as avroSchema"
    if reader.is_of("Avro") and options.get("positionalfieldmatching", "").lower() == "true":
        return "with positionalFieldMatching columns are found by their position"
    return None


def _reason_of_whole_records(schema: str) -> str | None:
    """Reason why values of JSON depend on the other columns that a query reads, or None.

    If Spark cannot convert a value to one of these types, all columns of the record are NULL.

    >>> udt = '{"type":"struct","fields":[{"name":"a","type":"integer"},{"name":"g","type":{"sqlType":"binary"}}]}'
    >>> str(_reason_of_whole_records(udt))[:29]
    'with a column of type binary '
    """
    found = re.search(r'"(?:type|elementType|valueType|sqlType)":"(binary|variant|void)"', schema)
    if found is None:
        return None
    fields = json.loads(schema)["fields"]
    if len(fields) == 1 and isinstance(fields[0]["type"], str):
        return None
    return f"with a column of type {found[1]} what a column holds depends on the columns read beside it"


def ambiguous_line(reader: Reader) -> str | None:
    """Java regular expression for lines with values that depend on the query, or None.

    >>> ambiguous_line(Reader("x.JsonFileFormat", {}, {}, ""))
    """
    if not reader.is_of("CSV"):
        return None
    return twofold_record(reader.matching_options(), reader.settings.get(PRUNING))


def corrupt_record(expressions: Iterable[Predicate], reader: Reader) -> str | None:
    """Column of corrupt records, if one of the expressions reads it, else None.

    Its values depend on the other columns that a query reads.
    """
    if not reader.parses_text:
        return None
    lowered = {name.lower(): value for name, value in reader.options.items()}
    name = lowered.get("columnnameofcorruptrecord") or reader.settings.get("spark.sql.columnNameOfCorruptRecord") or ""
    return name if name.lower() in top_level_columns(*expressions) else None


def struct_tested_for_null(expressions: Iterable[Predicate], reader: Reader) -> str | None:
    """Parquet column of structs that an expression tests for NULL, or None.

    If a file lacks all fields of the structs that a query reads, Spark reads the struct, or the array of structs, as
    NULL; which fields these are depends on the rest of the query. ``size(r.z)`` tests an array ``r``; ``r.z[0]`` is
    NULL in both cases.
    """
    if not reader.is_of(*PARQUET_READERS, "iceberg"):
        return None
    roots = tuple(expressions)
    vertices = [vertex for root in roots for vertex in walk(root)]
    edges = chain(((None, root) for root in roots), ((above, below) for above in vertices for below in children(above)))
    fields = (part for above, part in edges if _is_call(part, _FIELDS) and not _is_call(above, *_ELEMENTS))
    tested = chain((vertex.child for vertex in vertices if isinstance(vertex, IsNull)), fields)
    inner = (vertex for child in tested for vertex in walk(child) if isinstance(vertex, Column))
    return next((column.name for column in inner if "struct<" in (column.type or "")), None)


def default_read_in_part(expressions: Iterable[Predicate], reader: Reader) -> str | None:
    """Column of structs with a default, if one of the expressions reads it, else None.

    For files that lack the column, Spark reads its default in queries that read all fields of the structs, else NULL.
    """
    columns = (vertex for root in expressions for vertex in walk(root) if isinstance(vertex, Column))
    nested = ((parts_of_name(column.name), "struct<" in (column.type or "")) for column in columns)
    names = (parts[0] for parts, of_structs in nested if of_structs or len(parts) > 1)
    return next((name for name in names if reader.settings.get(DEFAULT_OF + name.lower()) is not None), None)


def _is_call(vertex: Predicate | None, *names: str) -> bool:
    return isinstance(vertex, Call) and vertex.name in names


def depends_on(expressions: Iterable[Predicate], reader: Reader) -> dict[str, str]:
    """Settings and versions that an index over some expressions depends on, with their values."""
    settings = reader.settings
    names = ["spark.sql.caseSensitive"]
    expressions = list(expressions)
    columns = sorted(top_level_columns(*expressions))
    names += [prefix + column for column in columns for prefix in (DEFAULT_OF, ID_OF)]
    # Spark parses text, and it evaluates a column's default, which is SQL, anew in every query
    parsed = reader.parses_text or any(settings.get(DEFAULT_OF + column) is not None for column in columns)
    names += [_SESSION_ZONE] if parsed else []
    names += [_LONGEST_LINE] if reader.parses_text else []
    vertices = [vertex for expression in expressions for vertex in walk(expression)]
    scopes = [word for word in FORMATS if f"{word}fileformat" in reader.file_format.lower()]
    if reader.is_of("Avro"):
        names += [*_AVRO, *([_JVM_ZONE] if reader.rebases else [])]
    elif not reader.parses_text:
        names += [_POSITIONAL] if reader.is_of("Orc") else _PARQUET
        if any(_is_temporal(vertex.type) for vertex in vertices if isinstance(vertex, Column)):
            names += [_JVM_ZONE, *_CALENDARS] if reader.is_of("Orc") else _TIMES  # ORC stores local times
            if reader.rebases:
                names.append(_JVM_ZONE)
            if str(settings.get("spark.sql.parquet.int96TimestampConversion")).lower() == "true":
                names.append(_SESSION_ZONE)
    functions = [vertex for vertex in vertices if isinstance(vertex, Call)]
    if parsed or any(not isinstance(vertex, Column) for vertex in vertices):
        names.append("spark.version")
        scopes.append(EXPRESSIONS)
    zoned = any(isinstance(vertex, Cast) and vertex.zone for vertex in vertices)
    if zoned or any(call.name.lower() in _JDK or _is_temporal(call.type) for call in functions):
        names.append("java.version")
    if any((call.implementation or "").startswith("python:") for call in functions):
        scopes.append(PYTHON)
        if any(_is_temporal(vertex.type) for vertex in vertices):
            names += [_SESSION_ZONE, _JVM_ZONE]  # timestamps are passed to Python as local time
    found = {name: _setting_text(name, settings.get(name)) for name in dict.fromkeys(names)}
    found[SETTINGS_OF + " ".join(scopes)] = of_scopes(settings.get(CHANGED), scopes)
    return found | {PLACE_OF + column: position for column, position in reader.positions(columns).items()}


def _setting_text(name: str, value: str | None) -> str:
    """Value of a setting as text; true and false in lower case, since Spark ignores their case."""
    text, is_switch = str(value), name.startswith("spark.sql.") and "columnName" not in name
    return text.lower() if is_switch and text.lower() in ("true", "false") else text


def top_level_columns(*expressions: Predicate) -> set[str]:
    """Top-level columns that some expressions read, without backquotes and in lower case."""
    return {parts_of_name(name)[0].lower() for name in columns_of(*expressions)}


def _is_temporal(kind: str | None) -> bool:
    return bool(kind) and any(word in (kind or "") for word in ("date", "timestamp"))


def reason_unusable(root: str, header: Header, entry: IndexEntry, request: Json) -> str | None:
    """Reason why an index does not apply to the files and settings of a query, or None.

    Parameters
    ----------
    root, header, entry
        The root under which the query found the metadata, the header of the snapshot, and the index.
    request
        The query's format, options, schema and settings; and as ``reading`` the settings of the session that reads the
        files, if it is another one with other settings.
    """
    why = _reason_unusable(root, header, entry, request)
    if why is not None or "reading" not in request:
        return why
    why = _reason_unusable(root, header, entry, {**request, "settings": request["reading"]})
    return None if why is None else f"another session reads the files of this query, and there {why}"


def _reason_unusable(root: str, header: Header, entry: IndexEntry, request: Json) -> str | None:
    source = header.source
    if (missing := entry.index.unavailable()) is not None:
        return missing
    if source.get("class") != request["format"]:
        return f"it was built over {_short(source.get('class'))}, the query reads {_short(request['format'])}"
    if (why := reason_elsewhere(root, header, entry)) is not None:
        return why
    settings = request["settings"]
    reader = Reader(request["format"], request["options"], settings, request.get("schema") or "")
    if (why := reason_declined(reader)) is not None:
        return why
    if (struct := struct_tested_for_null(entry.index.bound, reader)) is not None:
        return f"whether {struct} is NULL depends on which of its fields a query reads"
    if (column := default_read_in_part(entry.index.bound, reader)) is not None:
        return f"whether files that lack {column} hold its default depends on which of its fields a query reads"
    options = reader.matching_options()
    if options != replace(reader, options=source.get("options") or {}).matching_options():
        return f"it was built with the reader options {source.get('options')}, the query has {options}"
    if (corrupt := corrupt_record(entry.index.bound, reader)) is not None:
        return f"what {corrupt} holds depends on the columns that a query reads beside it"
    if columns := [name.removeprefix(PLACE_OF) for name in entry.depends if name.startswith(PLACE_OF)]:
        positions = reader.positions(columns)
        moved = [column for column in columns if positions.get(column) != entry.depends[PLACE_OF + column]]
        if moved:
            return f"it was built where the schema had {moved[0]} in another place than the query's schema"
    for name, value in entry.depends.items():
        if name.startswith((PLACE_OF, DEFINITION_OF)):
            continue
        if name.startswith(SETTINGS_OF):
            now = of_scopes(settings.get(CHANGED), name.removeprefix(SETTINGS_OF).split())
            if (differs := settings_difference(value, now)) is not None:
                return differs
            continue
        if _setting_text(name, settings.get(name)) == _setting_text(name, value):
            continue
        if name.startswith(DEFAULT_OF):
            column = name.removeprefix(DEFAULT_OF)
            return f"files that lack {column} read {value} for it then, {settings.get(name)} now"
        return f"it was built with {name}={value}, the session has {settings.get(name)}"
    positional = (str(settings.get(_POSITIONAL)).lower(), options.get(_POSITIONAL, "").lower())
    if reader.is_of("Orc") and "true" in positional:
        return f"with {_POSITIONAL} columns are found by their position"
    if request.get("schema") and source["class"].endswith(".CSVFileFormat"):
        return _csv_difference(json.loads(source["schema"]), json.loads(request["schema"]), reader.is_case_sensitive)
    return None


def _csv_difference(built: Json, read: Json, sensitive: bool) -> str | None:
    """Reason why CSV columns differ; their positions must agree in both schemas. None if they agree.

    A column's type affects only its own values: :func:`reasons_of_types` compares the types of indexed columns.
    """
    for ours, theirs in zip(built["fields"], read["fields"], strict=False):
        same = ours["name"] == theirs["name"] or (not sensitive and ours["name"].lower() == theirs["name"].lower())
        if not same:
            return f"it was built with the column {ours['name']} where the query's schema has {theirs['name']}"
    return None


def reasons_of_types(header: Header, predicate: Predicate) -> Iterator[str]:
    """Reasons why indexes over columns that the query reads as another type are not used.

    The values of a column as one type do not follow from those as another: text is parsed as the requested type, and 32
    unsigned bits are other numbers as int than as bigint.
    """
    read = {vertex.name: vertex.type for vertex in walk(predicate) if isinstance(vertex, Column)}
    for entry in header.entries:
        for name, kind in entry.columns:
            if read.get(name, kind) != kind:
                yield f"{entry.name} is not used: it was built over {name} as {kind}, the query reads {read[name]}"


def reasons_of_functions(header: Header, predicate: Predicate) -> Iterator[str]:
    """Reasons why indexes are not used: the query has another body or version of a Python function."""
    calls = (vertex for vertex in walk(predicate) if isinstance(vertex, Call))
    now = {call.name: call.implementation for call in calls if (call.implementation or "").startswith("python:")}
    for entry in header.entries if now else ():
        vertices = (vertex for expression in entry.index.bound for vertex in walk(expression))
        over = {vertex.name: vertex.implementation for vertex in vertices if isinstance(vertex, Call)}
        for name in over.keys() & now.keys():
            if over[name] != now[name]:
                yield f"{entry.name} is not used: {name} is another function, or version, than it was built with"


def reason_elsewhere(root: str, header: Header, entry: IndexEntry) -> str | None:
    """Reason why an index was built for another place, or by another definition of its type, or None."""
    if not same_place(root, header.root):
        return f"it was built for {header.root}; of data that were moved or copied, dataset.repair() builds it anew"
    if entry.depends.get(DEFINITION_OF + entry.index.kind) != definition(entry.index):
        return "it was built by another definition of its type than there is now; refresh_index('full')"
    return None


def same_place(found: str, recorded: str) -> bool:
    """Test whether two roots name one folder, also through symbolic links on a local file system."""
    if found == recorded:
        return True
    here, there = local_path(found), local_path(recorded)
    return here is not None and there is not None and os.path.realpath(here) == os.path.realpath(there)


def renamer(header: Header, request: Json) -> Callable[[str], str]:
    """Function from a column's name in the query to its name in the metadata, by Spark's rule on case.

    Spark finds the fields of JSON records by the exact names of the query's schema, whatever the setting.
    """
    is_json = str(header.source.get("class")).endswith(".JsonFileFormat")
    if is_json or str(request["settings"].get("spark.sql.caseSensitive")).lower() == "true":
        return lambda name: name
    names = {name for entry in header.entries for name, _ in entry.columns}
    lowered = {name.lower(): name for name in names}
    return lambda name: lowered.get(name.lower(), name)


def _short(name: Any) -> str:
    return str(name).rpartition(".")[2]
