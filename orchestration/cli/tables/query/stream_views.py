"""DuckDB connection with a view for each table of a stream, closed to files, writes and extensions."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import DataScan, Table
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.pandas_import import without_pandas
from jobs.clients.catalog.catalog import find_table
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.row_filters import filter_problem
from jobs.tables.commit.history.branch import branches
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.write.data_file_rows import is_of_equality_deletes
from orchestration.cli.tables.query.iceberg_dataset import IcebergDataset

if TYPE_CHECKING:
    import duckdb

ROWS, DEAD_LETTERS = "rows", "dead_letters"
BATCH_ROWS = 2_048
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    # Otherwise a name that is no table may resolve to a variable of this program.
    "python_enable_replacements": False,
    # Drivers share the machine. Beyond the limit DuckDB spills to files.
    "memory_limit": "2GB",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the selected table's rows. The stream's other tables are read as readers see them.

    Attributes:
        role: Selected table: `rows` for the main table, `dead_letters` for the dead-letter table.
        branch: Branch to read; None for the one that readers see.
        snapshot_id: Id of the snapshot; None for the branch's newest.
        where: Row filter of Iceberg, such as `id = 'p-17'`; files without such rows are not read.
        limit: Largest number of rows; None for all.
    """

    role: str = ROWS
    branch: str | None = None
    snapshot_id: int | None = None
    where: str | None = None
    limit: int | None = None


def readers_branch(spec: StreamSpec, table: str) -> str:
    """Branch that readers see: main if the stream publishes there, else the branch that it writes."""
    return MAIN_BRANCH if spec.publish is not None else spec.branch_of(table)


class StreamViews:
    """Views of one stream's tables, from `StreamViews` to `close`.

    Each table is a view by its full name, with and without the catalog, and by its last part. The main table is `rows`
    as well, and the table of dead letters `dead_letters`. Only tables that a query names are loaded.

    Args:
        spec: Spec of the stream.
        settings: Settings of the deployment, whose secrets are redacted in errors.
        catalog: Catalog with the stream's tables.
        selection: Selection of the selected table's rows.

    Raises:
        FrazilError: DuckDB is not installed.
    """

    def __init__(self, spec: StreamSpec, settings: Settings, catalog: Catalog, selection: Selection) -> None:
        self._duckdb: Any = _duckdb()
        self._spec: StreamSpec = with_named_tables(spec, catalog)
        self._settings: Settings = settings
        self._catalog: Catalog = catalog
        self._selection: Selection = selection
        self._datasets: list[IcebergDataset] = []
        # DuckDB's default is the current folder, with files that everyone can read.
        self._spilled: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="frazil-query-")
        config = {**_CONFIG, "temp_directory": self._spilled.name}
        self._connection: duckdb.DuckDBPyConnection = self._duckdb.connect(":memory:", config=config)
        self._connection.execute("SET TimeZone = 'UTC'")
        # As in Spark's SQL, names may begin with the catalog's, unless DuckDB reserves it, such as main and temp.
        database = _quoted(settings.catalog.name)
        with contextlib.suppress(self._duckdb.BinderException):
            self._connection.execute(f"ATTACH ':memory:' AS {database}; USE {database}")

    @property
    def asked(self) -> str:
        """Full name of the selected table."""
        return self._spec.dead_letter_table if self._selection.role == DEAD_LETTERS else self._spec.table.name

    @property
    def names(self) -> list[str]:
        """Full names of the stream's tables, the main one first."""
        mirrors = [mirror.table for _, mirror in self._spec.mirrored]
        return list(dict.fromkeys([*self._spec.target_names, *mirrors]))

    def query(self, sql: str) -> pa.RecordBatchReader:
        """Reader of a query's rows, which are computed as they are read.

        Args:
            sql: One reading statement of DuckDB's SQL.

        Raises:
            FrazilError: The statement may write, or fails.
        """
        try:
            self._require_reading(sql)
            for name in self._named_in(sql):
                self._create_views(name)
            self._connection.execute("SET lock_configuration = true")
            relation = self._connection.sql(sql)
            if relation is None:
                return pa.RecordBatchReader.from_batches(pa.schema([]), [])
            reader = relation.to_arrow_reader(BATCH_ROWS)
        except self._duckdb.Error as problem:
            raise self._error(problem) from None
        return pa.RecordBatchReader.from_batches(reader.schema, self._translated(reader))

    def close(self) -> None:
        """Close the connection and delete its files."""
        self._connection.close()
        self._spilled.cleanup()

    def _translated(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (self._duckdb.Error, pa.ArrowException, OSError) as problem:
            raise self._error(problem) from None

    def _require_reading(self, sql: str) -> None:
        kinds, statements = self._duckdb.StatementType, self._connection.extract_statements(sql)
        if len(statements) != 1:
            raise FrazilError(
                f"{len(statements)} statements were given, and one is run.", fix=f'frazil query {self._spec.stream} "…"'
            )
        if statements[0].type not in (kinds.SELECT, kinds.EXPLAIN):
            raise FrazilError(
                f"frazil query only reads, and this is a statement of type {statements[0].type.name}.",
                fix="write a SELECT; frazil shell has Spark, which also writes",
            )

    def _named_in(self, sql: str) -> list[str]:
        """Full names of the stream's tables that a statement may read."""
        quoted = sql.replace("'", "''")
        ((text,),) = self._connection.execute(f"SELECT json_serialize_sql('{quoted}')").fetchall()
        document = json.loads(text)
        if document["error"]:
            return self.names
        read = {name.lower() for name in _table_names(document)}
        called = {self._spec.table.name: ROWS, self._spec.dead_letter_table: DEAD_LETTERS}
        # SHOW TABLES names no table, and shows all of them.
        return [
            name for name in self.names if {name.lower(), name.rpartition(".")[2].lower(), called.get(name)} & read
        ] or self.names

    def _create_views(self, name: str) -> None:
        asked = name == self.asked
        table = find_table(self._catalog, name)
        if table is None:
            if not asked:
                return
            raise FrazilError(
                f"table {name} of stream {self._spec.stream} does not exist yet.", fix=f"frazil run {self._spec.stream}"
            )
        dataset = IcebergDataset(table, self._scan(table, name))
        self._datasets.append(dataset)
        self._connection.from_arrow(dataset).create_view(name)
        namespace, _, last = name.rpartition(".")
        called = {self._spec.table.name: ROWS, self._spec.dead_letter_table: DEAD_LETTERS}.get(name)
        views = [_quoted(called)] if called else []
        if last.lower() not in (ROWS, DEAD_LETTERS):
            views.append(_quoted(last))
        if namespace:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(namespace)}")
            views.append(f"{_quoted(namespace)}.{_quoted(last)}")
        for view in views:
            self._connection.execute(f"CREATE VIEW IF NOT EXISTS {view} AS FROM main.{_quoted(name)}")

    def _scan(self, table: Table, name: str) -> DataScan:
        selection = self._selection if name == self.asked else Selection()
        branch = selection.branch or readers_branch(self._spec, name)
        head = table.metadata.refs.get(branch)
        if head is None and selection.branch is not None:
            has = " or ".join(sorted(branches(table.metadata))) or "none yet"
            raise FrazilError(f"table {name} has no branch {branch}.", fix=f"--branch {has}")
        snapshot = selection.snapshot_id or (head.snapshot_id if head else None)
        if snapshot is not None and table.metadata.snapshot_by_id(snapshot) is None:
            raise FrazilError(
                f"table {name} has no snapshot {snapshot}: it expired, or is another table's.",
                fix=f"frazil at {self._spec.stream} --snapshot {snapshot}",
            )
        if selection.where is not None and (why := filter_problem(selection.where, table.schema())):
            raise FrazilError(
                f"--where: '{selection.where}' cannot be asked of table {name}: {why}",
                fix="write it such as \"id = 'p-17' and amount > 5\"; the columns are "
                + ", ".join(table.schema().column_names),
            )
        scan = table.scan(snapshot_id=snapshot, limit=selection.limit)
        return scan.filter(selection.where) if selection.where is not None else scan

    def _error(self, problem: Exception) -> FrazilError:
        failure = next((each.failure for each in self._datasets if each.failure is not None), None)
        if isinstance(failure, FrazilError):
            return failure
        if failure is not None and is_of_equality_deletes(failure):
            return FrazilError(
                f"stream {self._spec.stream}: a table that is asked has equality deletes, which another writer has "
                "made and only Spark applies.",
                fix=f"frazil maintain {self._spec.stream} --only compact, which applies them",
            )
        if failure is not None:
            return FrazilError(
                f"stream {self._spec.stream}: a data file cannot be read: {type(failure).__name__}: "
                f"{redacted(self._settings, first_line(failure))}",
                fix=f"frazil audit {self._spec.stream}",
            )
        return FrazilError(
            f"the query cannot be run: {redacted(self._settings, str(problem).strip())}",
            fix=f'frazil query {self._spec.stream} "DESCRIBE rows"; tables: {", ".join(self._called())}',
        )

    def _called(self) -> Sequence[str]:
        return [ROWS, DEAD_LETTERS, *self.names]


def _duckdb() -> Any:
    try:
        # DuckDB's import would load pandas, which is not needed here.
        with without_pandas():
            import duckdb
    except ImportError:
        raise FrazilError(
            "DuckDB, which answers queries, is not installed.", fix="pip install 'frazil[query]'"
        ) from None
    return duckdb


def _table_names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(name := node.get("table_name"), str):
            yield name
        for value in node.values():
            yield from _table_names(value)
    elif isinstance(node, list):
        for value in node:
            yield from _table_names(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
