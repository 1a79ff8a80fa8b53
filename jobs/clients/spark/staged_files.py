"""Staged files: present or former data files of a table that Iceberg's own reader reads in the JVM.

Iceberg reads a set of scan tasks that was staged under a name, as its compaction does. The set and the table stay in
the JVM until they are released.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
)

from jobs.clients.spark.jvm_calls import interruptible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENCRYPTION_KEY, _NAME_MAPPING = "encryption.key-id", "schema.name-mapping.default"


def why_not_staged(metadata: TableMetadata, files: Sequence[DataFile]) -> str | None:
    """Return why Iceberg's own reader cannot read data files, as a part of a sentence; None if it can.

    Args:
        metadata: Metadata of the table; rows get its present columns.
        files: Present or former files of the table.
    """
    schema = metadata.schema()
    if any(file.file_format is not FileFormat.PARQUET for file in files):
        return "a file is no Parquet"
    if any(file.key_metadata is not None for file in files) or _ENCRYPTION_KEY in metadata.properties:
        return "a file is encrypted"
    if _NAME_MAPPING in metadata.properties:
        return "the table has a name mapping, for files without field ids"
    names = [field.name for field in schema.fields]
    if len({name.casefold() for name in names}) < len(names):
        return "two columns differ by upper and lower case alone"
    if any(field.initial_default is not None for field in index_by_id(schema).values()):
        return "a column has a default for the rows before it"
    return next(filter(None, (read_otherwise(schema, each) for each in metadata.schemas)), None)


class StagedFiles:
    """Data files of a table as a Spark frame, until it is closed.

    Attributes:
        frame: All rows of the files, in the columns of the table; deletes are not applied.
    """

    def __init__(self, session: SparkSession, path: str, files: Sequence[DataFile], metadata: TableMetadata) -> None:
        """Stage the files.

        They are staged as files of an unpartitioned table: each column is read from the files, none from their
        metadata.

        Args:
            path: Name of the table in Spark's SQL, with its catalog.
            files: Present or former files of the table; at least one.
            metadata: Metadata of the table; rows get its present columns.

        Raises:
            StagingError: The catalog now has another table or schema under the name, or a file does not exist.
            Exception: Spark cannot load the table, or cannot reach its files.
        """
        self._session = session
        self._name = str(uuid.uuid4())
        self._table: Any = None
        # A Python thread has its own JVM thread, so the active session set there affects nobody else.
        try:
            self.frame: DataFrame = interruptible(lambda: self._staged(path, files, metadata), lambda: None)
        except BaseException:
            self.close()
            raise

    def _staged(self, path: str, files: Sequence[DataFile], metadata: TableMetadata) -> DataFrame:
        session, jvm = self._session, self._jvm
        spark: Any = session._jsparkSession
        # Iceberg looks up catalogs in the JVM's active session.
        jvm.SparkSession.setActiveSession(spark)
        try:
            iceberg = jvm.org.apache.iceberg
            table = iceberg.spark.Spark3Util.loadIcebergTable(spark, path)
            if str(table.uuid()) != str(metadata.table_uuid):
                raise StagingError("another table has the name by now")
            if table.schema().schemaId() != metadata.current_schema_id:
                raise StagingError("the table has another schema by now")
            # The first file stands for all. If the JVM cannot reach the storage, Python reads the files instead.
            if not table.io().newInputFile(files[0].file_path).exists():
                raise StagingError("a file is not there, as the JVM sees it")
            spec = iceberg.PartitionSpec.unpartitioned()
            every = iceberg.expressions.ResidualEvaluator.unpartitioned(iceberg.expressions.Expressions.alwaysTrue())
            shapes = iceberg.SchemaParser.toJson(table.schema()), iceberg.PartitionSpecParser.toJson(spec)
            deletes = session.sparkContext._gateway.new_array(iceberg.DeleteFile, 0)  # pyright: ignore[reportOptionalMemberAccess]
            tasks = jvm.java.util.ArrayList()
            for file in files:
                built = iceberg.DataFiles.builder(spec).withPath(file.file_path).withFormat(file.file_format.value)
                built = built.withFileSizeInBytes(file.file_size_in_bytes).withRecordCount(file.record_count)
                tasks.add(iceberg.BaseFileScanTask(built.build(), deletes, *shapes, every))
            self._table = table
            iceberg.spark.SparkTableCache.get().add(self._name, table)
            iceberg.spark.ScanTaskSetManager.get().stageTasks(table, self._name, tasks)
            return session.read.format("iceberg").load(self._name)
        finally:
            jvm.SparkSession.clearActiveSession()

    @property
    def _jvm(self) -> Any:
        return self._session._jvm

    def close(self) -> None:
        """Release the files; the frame cannot be read any more. A second call does nothing."""
        table, self._table = self._table, None
        if table is None:
            return
        # If the JVM has ended, nothing is staged any more.
        with contextlib.suppress(Exception):
            self._jvm.org.apache.iceberg.spark.SparkTableCache.get().remove(self._name)
            self._jvm.org.apache.iceberg.spark.ScanTaskSetManager.get().removeTasks(table, self._name)


class StagingError(Exception):
    """The JVM sees another table or schema, or not all files."""


_WIDENED = {(IntegerType, LongType), (FloatType, DoubleType)}


def read_otherwise(schema: Schema, former: Schema) -> str | None:
    """Return why the JVM may read files of a former schema differently, as a part of a sentence; None if not.

    Args:
        schema: Present schema of the table.
        former: Former schema of the table.
    """
    now, then = index_by_id(schema), index_by_id(former)
    for number, field in now.items():
        if why := next(_reasons(field, then), None):
            return f"{schema.find_column_name(number)}, {why}"
    return None


def _reasons(field: NestedField, then: dict[int, NestedField]) -> Iterator[str]:
    before = then.get(field.field_id)
    if before is None:
        if field.required:
            yield "a column that is required, came later than others"
        return
    if field.required and not before.required:
        yield "a column that is required, was optional before"
    if not _alike(before.field_type, field.field_type):
        yield f"was of type {before.field_type} before"
    kind = field.field_type
    if isinstance(kind, StructType) and not any(each.field_id in then for each in kind.fields):
        yield "a struct, has no field that it had before"


def _alike(before: IcebergType, now: IcebergType) -> bool:
    if not (before.is_primitive and now.is_primitive):
        return type(before) is type(now)
    if isinstance(before, DecimalType) and isinstance(now, DecimalType):
        return before.scale == now.scale and before.precision <= now.precision
    return before == now or (type(before), type(now)) in _WIDENED
