"""The location of a catalog table, and its switch to another folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from geoskip.errors import ConflictError, GeoskipError, InvalidSpecificationError
from geoskip.sources.column_names import backquote
from geoskip.sources.listed_files import NULL_VALUE, ListedFile
from geoskip.spark.build.listing import qualify, resolve_path
from geoskip.spark.build.spark_jobs import reason_of
from geoskip.spark.dataset.source import DatasetSource


@dataclass
class TableLocation:
    """A table of the session's catalog, with its folder and those of its partitions.

    Attributes
    ----------
    spark, name
        The session, and the table's name in SQL.
    root
        The URI of the table's folder.
    columns
        The partition columns that the catalog tracks; empty for other tables.
    partitions
        The partitions, each with the values of its columns in the catalog, and the URI of its folder.
    """

    spark: SparkSession
    name: str
    root: str
    columns: tuple[str, ...]
    partitions: list[tuple[tuple[str | None, ...], str]]

    @classmethod
    def of(cls, source: DatasetSource) -> TableLocation:
        """Look up a table.

        Raises InvalidSpecificationError for views, bucketed tables and tables of other catalogs.
        """
        assert source.table is not None
        spark: Any = source.spark
        state = spark._jsparkSession.sessionState()
        try:
            name = state.sqlParser().parseTableIdentifier(source.table)
            found = state.catalog().getTableMetadata(name)
        except Exception as error:
            raise InvalidSpecificationError(
                f"{source.name} is no table of Spark's own catalogue, so its folder cannot be switched; rewrite the "
                f"folder with a handle of its path ({reason_of(error)})"
            ) from None
        if str(found.tableType().name()) == "VIEW" or found.bucketSpec().isDefined():
            what = (
                "a view" if str(found.tableType().name()) == "VIEW" else "divided into buckets, which a layout breaks"
            )
            raise InvalidSpecificationError(
                f"{source.name} is {what}, so it cannot be rewritten; rewrite another table"
            )
        root = _folder(source.spark, found.location())
        columns: tuple[str, ...] = ()
        partitions = []
        if found.tracksPartitionsInCatalog():
            columns = tuple(_to_list(found.partitionColumnNames()))
            nothing = spark._jvm.scala.Option.empty()
            for each in _to_list(state.catalog().listPartitions(name, nothing)):
                spec = each.spec()
                values = tuple(None if spec.apply(column) is None else str(spec.apply(column)) for column in columns)
                partitions.append((values, _folder(source.spark, each.location())))
            for column, values in zip(columns, zip(*(values for values, _ in partitions), strict=True), strict=False):
                _check_values(source, column, str(found.partitionSchema().apply(column).dataType().sql()), values)
        shared = next((folder for folder, count in Counter(place for _, place in partitions).items() if count > 1), "")
        if shared:
            raise InvalidSpecificationError(
                f"several partitions of {source.name} are in {shared}, so its files belong to each of them, which new "
                "folders cannot repeat; give each a folder of its own: ALTER TABLE ... PARTITION (...) SET LOCATION"
            )
        return cls(source.spark, source.table, root, columns, partitions)

    def folders(self, root: str) -> list[str]:
        """URIs of the folders with the table's files, without folders inside of others."""
        found = sorted({root, *(folder for _, folder in self.partitions)})
        return [each for each in found if not any(each.startswith(f"{other}/") for other in found if other != each)]

    def relative(self, root: str) -> Callable[[ListedFile], str]:
        """Function that returns the path of an old file relative to the new folder."""

        def path_of(file: ListedFile) -> str:
            inside = [(values, folder) for values, folder in self.partitions if file.uri.startswith(f"{folder}/")]
            if not inside:
                return file.uri.removeprefix(f"{root.rstrip('/')}/")
            values, folder = max(inside, key=lambda pair: len(pair[1]))
            return f"{self._part(values)}/{file.uri.removeprefix(folder + '/')}"

        return path_of

    def check_current(self, root: str) -> None:
        """Raise ConflictError if the table's folders have changed since they were looked up."""
        now = TableLocation.of(DatasetSource(self.spark, table=self.name))
        if now.root != root or sorted(now.partitions, key=str) != sorted(self.partitions, key=str):
            raise ConflictError(
                f"table {self.name} was switched to another folder, or its partitions changed, while it was rewritten: "
                "nothing was replaced and nothing is lost; rewrite again"
            )

    def switch(self, folder: str) -> None:
        """Switch the table and its partitions, which may have no rows, to a folder with the same rows."""
        places = [f"{folder}/{self._part(values)}" for values, _ in self.partitions]
        for place in places:
            path, system = resolve_path(self.spark, place)
            system.mkdirs(path)
        self._set_locations(folder, places)

    def restore(self) -> None:
        """Switch the table and its partitions back to the folders that were looked up."""
        self._set_locations(self.root, [place for _, place in self.partitions])

    def _set_locations(self, root: str, places: Sequence[str]) -> None:
        for (values, _), place in zip(self.partitions, places, strict=True):
            self._run(f"{self._partition(values)} SET LOCATION {_string_literal(place)}")
        self._run(f"SET LOCATION {_string_literal(root)}")
        self.spark.catalog.refreshTable(self.name)

    def _run(self, change: str) -> None:
        try:
            self.spark.sql(f"ALTER TABLE {self.name} {change}")
        except PySparkException as error:
            raise GeoskipError(
                f"table {self.name} could not be changed by ALTER TABLE {change}: {reason_of(error)}"
            ) from error

    def _partition(self, values: tuple[str | None, ...]) -> str:
        named = ", ".join(
            f"{backquote(column)} = {'NULL' if _is_null(value) else _string_literal(str(value))}"
            for column, value in zip(self.columns, values, strict=True)
        )
        return f"PARTITION ({named})"

    def _part(self, values: tuple[str | None, ...]) -> str:
        """Path of a partition relative to the table's folder, in Spark's form."""
        jvm: Any = self.spark._jvm
        names = jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
        return "/".join(
            str(names.getPartitionPathString(column, NULL_VALUE if _is_null(value) else value))
            for column, value in zip(self.columns, values, strict=True)
        )


def _check_values(source: DatasetSource, column: str, kind: str, values: Sequence[str | None]) -> None:
    """Raise an error for a value that SQL writes otherwise, such as ``01`` of an INT."""
    texts = sorted({value for value in values if value is not None and not _is_null(value)})
    if not texts:
        return
    rows = ", ".join(f"({_string_literal(text)})" for text in texts)
    other = f"SELECT v FROM VALUES {rows} AS t(v) WHERE NOT v <=> CAST(TRY_CAST(v AS {kind}) AS STRING)"
    if found := source.spark.sql(other).take(1):
        raise InvalidSpecificationError(
            f"{source.name} has a partition {column}={found[0].v}, which is no {kind} as Spark writes it, so it cannot "
            "be switched to another folder; name its folder as the value, and recover the partitions again"
        )


def _is_null(value: str | None) -> bool:
    return value is None or value == NULL_VALUE


def _string_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _folder(spark: SparkSession, uri: Any) -> str:
    """Folder of a Java URI in Hadoop's form."""
    jvm: Any = spark._jvm
    return qualify(spark, str(jvm.org.apache.hadoop.fs.Path(uri).toString())).rstrip("/")


def _to_list(scala: Any) -> list[Any]:
    return [scala.apply(number) for number in range(scala.size())]
