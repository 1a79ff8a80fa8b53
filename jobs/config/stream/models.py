"""A stream as data: its YAML file under ``streams/``, its tables, and the columns of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.base.errors import FrazilError
from jobs.config.documents.base import Check, Problem, config_hash
from jobs.config.steps.shaping import added_by, changes_columns
from jobs.config.stream.column_problems import identifier_problems_of
from jobs.config.stream.error_handling import DeadLetters
from jobs.config.stream.row_problems import agreement_checks, row_problems
from jobs.config.stream.stream_tables import StreamTables
from jobs.config.stream.stream_targets import columns_in, lane_columns
from jobs.config.stream.table import Table
from jobs.config.values.table_columns import LaneColumns
from jobs.records.formats.interface.decoder import LEFT_OUT
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.problems import shown_key
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.compatibility import disagreements
from jobs.records.schema.decoded_columns import DecodedColumns, decoded_columns, key_as_widened
from jobs.records.schema.iceberg_schema import unread_problem
from jobs.records.schema.identifier_fields import optional_columns, required_columns, with_identifier_fields
from jobs.records.schema.name_matching import aliases_of
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.records.transforms.columns import Columns


def new_table_schema(
    stream: str,
    table: Table,
    columns: RecordColumns,
    rows: Schema,
    whole: Callable[[Schema, RecordColumns], Schema],
    *,
    maintained: bool,
    shaped: bool,
) -> Schema:
    """The schema of a new table.

    Args:
        stream: Its id.
        columns: Those that are not from the value.
        rows: The columns of values.
        whole: Gives all columns of the table for the two.
        maintained: Whether frazil is to maintain the table.
        shaped: Whether steps change columns that no file declares, so that rows are decoded to others.

    Raises:
        FrazilError: frazil could not maintain it, or the columns of the key are not known.
    """
    if columns.key is not None and not columns.key.is_resolved:
        raise FrazilError(
            f"stream {stream}: the columns of its keys are those of table {table.name}, which is not there yet.",
            fix=f"frazil run {stream}, which creates it",
        )
    if table.force_optional and not shaped:
        rows = optional_columns(rows, table.identifiers)
    schema = whole(rows, columns)
    if maintained and (problem := unread_problem(schema)):
        raise FrazilError(f"stream {stream}: table {table.name} is not made: {problem}.")
    if table.force_optional and shaped:
        kept = ((each,) for each in columns.kafka.names)
        schema = optional_columns(schema, [*table.identifiers, *kept])
    if problems := identifier_problems_of(schema, table):
        said = "; ".join(problem for _, problem in problems)
        raise FrazilError(
            f"stream {stream}: table {table.name} is not made: table.identifier_fields: {said}.",
            fix=f"correct table.identifier_fields in streams/{stream}.yaml",
        )
    return with_identifier_fields(schema, table.identifier_names) if table.identifiers else schema


NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class StreamSpec(StreamTables):
    """One stream: one YAML file, one Spark streaming query, one checkpoint."""

    def _checks(self) -> Iterable[Check]:
        return agreement_checks(self)

    def problems_of(self, rows: Schema, columns: RecordColumns) -> list[Problem]:
        """Returns what the file says of columns that rows do not have so, each with its place in the file.

        Args:
            rows: Their columns as they are decoded, without those that say where they came from.
            columns: Those that are not from the value.
        """
        return row_problems(self, rows, columns)

    def transformed(self, decoded: Schema) -> Schema:
        """The columns of rows behind the stream's transforms.

        Args:
            decoded: Those before them, with the ones of key and headers.
        """
        return self.chain.output(Columns.of(decoded)).schema if self.chain else decoded

    def problems_with(self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES) -> list[Problem]:
        """Returns what a file that leaves columns to its table says of them and that does not have so, with its place.

        Args:
            table: The schema of the stream's table.
            properties: Of the table, see `resolved_for`.
        """
        if problem := self._key_problem(table, properties):
            return [(("decode", "key", "schema"), problem)]
        return self.problems_of(self.resolved_for(table, properties).schema, self.record_columns_for(table, properties))

    def _key_problem(self, table: Schema, properties: Mapping[str, str]) -> str | None:
        key = self.record_columns.key
        kept = decoded_columns(properties, self.stream) if key and self.shapes else None
        if key is None or (kept and kept.keyless):
            return None
        return key.problem_with((kept.key if kept else None) or table)

    @property
    def resolved(self) -> ResolvedSchema:
        """The rows that values become, and their decoder, of a stream whose file declares them.

        Raises:
            FrazilError: Its table, or a registry, says; see `resolved_for`.
        """
        if (declared := self.decode.declared) is None:
            raise FrazilError(
                f"stream {self.stream}: decode.schema is '{self.decode.schema_source}', so its columns are those of "
                f"table {self.table.name}, which is not there yet.",
                fix=f"frazil run {self.stream}, which creates it",
            )
        return declared

    def resolved_for(
        self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES, *, evolving: bool = False
    ) -> ResolvedSchema:
        """The rows that values become, and their decoder, given the stream's table; transforms come behind them.

        Args:
            table: Its schema.
            properties: Of the table; its name mapping tells which further names columns have in records, and it keeps
                the decoded columns of steps that change them. What asks for the columns of others goes without.
            evolving: For the stream's driver, which may alter the table.
        """
        if self.chain and self.decode.declared is not None:
            # The columns of the table are those behind the transforms; the file declares the ones before them.
            return self.resolved
        columns = self.decoded_for(table, properties)
        found = self.decode.resolved_for(columns.rows, columns.aliases)
        policy = self.evolution if evolving else self.evolution.elsewhere
        options = policy.as_options()
        if options:
            own = self.columns_from_elsewhere | (self.changes.aside if self.changes else frozenset[str]())
            options["refused"] = tuple((f"$.{shown_key(name)}", LEFT_OUT) for name in sorted(own))
        return found.with_options(options)

    def decoded_for(self, table: Schema, properties: Mapping[str, str]) -> DecodedColumns:
        """The columns of values before the steps, as the table keeps them, or else as it has them."""
        if self.shapes and (kept := decoded_columns(properties, self.stream)):
            return kept
        made, key = self.made_columns, self.record_columns.key
        mine = [each for each in self.record_columns.left_of(table).fields if each.name not in made]
        rows = Schema(*(each for each in mine if not each.name.lower().startswith(KAFKA_COLUMN_PREFIX)))
        struct = [each for each in table.fields if key and not key.is_resolved and each.name == key.into]
        aliases = aliases_of(table, properties, self.table.name)
        return DecodedColumns(
            rows if self.decode.declared is None else self.declared_rows, Schema(*struct) if struct else None, aliases
        )

    def record_columns_for(self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES) -> RecordColumns:
        """The columns that rows have of the key, the headers and Kafka's own, given the stream's table.

        Args:
            table: Its schema.
            properties: Of the table, see `resolved_for`.

        Raises:
            FrazilError: It has no such column of keys.
        """
        if problem := self._key_problem(table, properties):
            raise FrazilError(
                f"stream {self.stream}: decode.key.schema is left to table {self.table.name}, and {problem}.",
                fix=f"correct decode.key in streams/{self.stream}.yaml, or alter the table",
            )
        if self.chain and self.decode.declares_all:
            return self.record_columns
        if self.shapes and (kept := decoded_columns(properties, self.stream)):
            return self.record_columns_of(kept, table)
        return self.record_columns.resolved_for(table, aliases_of(table, properties, self.table.name))

    def record_columns_of(self, decoded: DecodedColumns, table: Schema) -> RecordColumns:
        """The columns that rows have of the key, the headers and Kafka's own, given the decoded columns.

        Args:
            decoded: As the stream's table keeps them, or is to keep them.
            table: Its schema, which says the columns of a key that they lack, and has wider types where it was altered.
        """
        if decoded.keyless:
            return self.record_columns.with_key_of(())
        key = key_as_widened(decoded.key, table) if decoded.key else table
        return self.record_columns.resolved_for(key, decoded.aliases)

    def disagreements_with(
        self, table: Schema, name: str | None = None, *, properties: Mapping[str, str] = NO_PROPERTIES
    ) -> list[str]:
        """Why the stream's rows cannot be written to a table of a schema, a sentence for each reason.

        Args:
            table: Its schema.
            name: Of one of the stream's tables of rows; without it the stream's own.
            properties: Of the table, see `resolved_for`.
        """
        if problem := self._key_problem(table, properties):
            return [f"It does not say which columns a key has: {problem}."]
        return disagreements(self.rows_for(table, name, properties=properties), table, self.kafka_columns)

    def rows_for(
        self, table: Schema, name: str | None = None, *, properties: Mapping[str, str] = NO_PROPERTIES
    ) -> Schema:
        """The columns that the stream's rows give to one of its tables, without those of Kafka's own.

        Args:
            table: Its schema.
            name: Of one of the stream's tables of rows; without it the stream's own.
            properties: Of the table, see `resolved_for`.

        Raises:
            FrazilError: The table does not say which columns a key has.
        """
        decoded = self.record_columns_for(table, properties).beside(self.resolved_for(table, properties).schema)
        return self.columns_in(name, self.transformed(decoded))

    @property
    def table_schema(self) -> Schema:
        """The schema with which the stream's table is created, of a stream whose file declares its columns.

        Raises:
            FrazilError: A registry, or the first records, say.
        """
        return self.table_schema_of(self.resolved.schema)

    def table_schema_for(self, name: str) -> Schema:
        """The same of one of the stream's tables of rows; raises as `table_schema` does."""
        return self.table_schema_of(self.resolved.schema, name=name)

    def table_schema_beside(self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES) -> Schema:
        """The same, given a table that is there and says the columns of a key that the file does not.

        Raises:
            FrazilError: It does not; or a registry, or the first records, say the columns of values.
        """
        if self.decode.declares_all:
            return self.table_schema
        key = self.record_columns_for(table, properties).key
        return self.table_schema_of(self.resolved.schema, key.rows.fields if key else ())

    def table_schema_of(
        self, rows: Schema, key: Iterable[NestedField] | None = None, *, name: str | None = None
    ) -> Schema:
        """The schema of a new table for rows of a schema.

        Args:
            rows: The columns of values.
            key: Those of the key, unless the file declares them.
            name: Of one of the stream's tables of rows; without it the stream's own.

        Raises:
            FrazilError: frazil could not maintain it, or the columns of the key are not known.
        """
        columns, whole = self.record_columns.with_key_of(key), partial(self.table_columns, name=name)
        if self.decode.schema_source == "infer":
            # Records never say that a field is always there; who names it an identifier does.
            rows = required_columns(rows, self.table.identifiers)
        maintained = self.maintenance.enabled
        how = {"maintained": maintained, "shaped": self.shapes}
        return new_table_schema(self.stream, self.table, columns, rows, whole, **how)

    def table_columns(self, rows: Schema, columns: RecordColumns, name: str | None = None) -> Schema:
        """All columns of a new table for rows decoded to a schema, with those that are not from the value."""
        behind = self.transformed(columns.beside(self.decode.with_extra_column(rows)))
        return self.kafka_columns.added_to(self.columns_in(name, behind))

    def columns_in(self, name: str | None, rows: Schema) -> Schema:
        """Which columns of the rows one of their tables has, beside those of Kafka's own; of the stream's own all.

        Args:
            name: Of the table; None of the stream's own.
            rows: The columns behind the transforms.
        """
        rows = rows if self._lane is None else self._lane.left_of(rows)
        return columns_in(self.table, self.route, self.late_tables, name, rows)

    @property
    def record_columns(self) -> RecordColumns:
        """The columns that rows have of the key, the headers and Kafka's own; see `record_columns_for`."""
        return self.decode.record_columns(self.kafka_columns)

    @property
    def made_columns(self) -> frozenset[str]:
        """The columns that the stream's steps add, of one whose table says which columns are decoded; else none."""
        return frozenset[str]() if self.decode.declares_all else added_by(self.chain)

    @property
    def shapes(self) -> bool:
        """Whether the table has other columns than those that are decoded and that no file declares: it keeps them."""
        if self.decode.declares_all or self.evolve.clash == "shadow" or self.decode.of_table is not None:
            return False
        return self._lane is not None or changes_columns(self.chain)

    @property
    def lane_columns(self) -> LaneColumns | None:
        """Which columns the table has of the rows, of a stream as the rows of one of several tables are made."""
        return self._lane

    @property
    def columns_from_elsewhere(self) -> frozenset[str]:
        """The names that no column of the value has, of a stream whose file does not declare it."""
        return self.record_columns.names | (frozenset[str]() if self.shapes else self.made_columns)

    def for_table(self, name: str) -> StreamSpec:
        """The stream as the rows of one of its tables are made: where each has columns of its own, of it alone.

        Its columns, and what is said of them, are those of that table, and the table of its late rows follows it. Of
        one of late rows they are those of the table whose late rows it has. Otherwise it is this stream.
        """
        if not self.own_columns:
            return self
        if (timely := self.late_rows_of(name)) is not None and self.event_time is not None:
            landing = self.event_time.model_copy(update={"late": "land"})
            update = {"table": self.table_settings(name), "event_time": landing}
            return self.for_table(timely).model_copy(update=update)
        letters = (self.errors.dead_letters or DeadLetters()).model_copy(update={"table": self.dead_letter_table})
        errors = self.errors.model_copy(update={"dead_letters": letters})
        made = self.model_copy(update={"table": self.table_settings(name), "route": None, "errors": errors})
        made._named, made._absent, made._lane = (), frozenset(), lane_columns(self.route, self.table, name)
        made._apply_option = f" --table {name}"
        return made

    @property
    def config_hash(self) -> str:
        """Twelve hexadecimal digits that change with whatever changes the rows, and with nothing else.

        Two ways to write the same (spaces in the schema, aliases of types, a default written out) give the same.
        """
        return config_hash(self)
