"""Model of a stream: its YAML file under ``streams/``, its tables, and the columns of their rows."""

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
    """Return the schema of a new table.

    Args:
        stream: Id of the stream.
        columns: Columns that do not come from the value.
        rows: Columns of values.
        whole: Returns all columns of the table, given these two.
        maintained: Whether frazil maintains the table.
        shaped: Whether steps change columns that no file declares, so that decoded columns differ from the table's.

    Raises:
        FrazilError: frazil could not maintain the table, or the columns of the key are unknown.
    """
    if columns.key is not None and not columns.key.is_resolved:
        raise FrazilError(
            f"stream {stream}: the columns of its keys are those of table {table.name}, which does not exist yet.",
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
        """Returns the problems of the file with the columns of rows, each with its place in the file.

        Args:
            rows: Decoded columns, without Kafka's.
            columns: Columns that do not come from the value.
        """
        return row_problems(self, rows, columns)

    def transformed(self, decoded: Schema) -> Schema:
        """Return the columns of rows after the stream's transforms.

        Args:
            decoded: Columns before the transforms, including those of key and headers.
        """
        return self.chain.output(Columns.of(decoded)).schema if self.chain else decoded

    def problems_with(self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES) -> list[Problem]:
        """Returns the problems, with the table's columns, of a file that leaves columns to its table.

        Args:
            table: Schema of the stream's table.
            properties: Properties of the table, see `resolved_for`.
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
        """Columns that values become, and their decoder, if the file declares them.

        Raises:
            FrazilError: The columns come from the table or a registry; see `resolved_for`.
        """
        if (declared := self.decode.declared) is None:
            raise FrazilError(
                f"stream {self.stream}: decode.schema is '{self.decode.schema_source}', so its columns are those of "
                f"table {self.table.name}, which does not exist yet.",
                fix=f"frazil run {self.stream}, which creates it",
            )
        return declared

    def resolved_for(
        self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES, *, evolving: bool = False
    ) -> ResolvedSchema:
        """Return the columns that values become before the transforms, and their decoder, given the stream's table.

        Args:
            table: Schema of the table.
            properties: Properties of the table. Its name mapping has further names of columns in records. If steps
                change columns, a property has the decoded columns. Without properties, neither counts.
            evolving: Whether the caller is the stream's driver, which may alter the table.
        """
        if self.chain and self.decode.declared is not None:
            # The table has the columns after the transforms; the file declares those before them.
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
        """Return the columns of values before the steps: those in the table's property, else the table's columns."""
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
        """Return the columns of key, headers and Kafka metadata, given the stream's table.

        Args:
            table: Schema of the table.
            properties: Properties of the table, see `resolved_for`.

        Raises:
            FrazilError: The table has no such column of keys.
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
        """Return the columns of key, headers and Kafka metadata, given the decoded columns.

        Args:
            decoded: Decoded columns that the stream's table keeps, or is to keep.
            table: Schema of the table, which has the key's columns if `decoded` lacks them, and possibly wider types.
        """
        if decoded.keyless:
            return self.record_columns.with_key_of(())
        key = key_as_widened(decoded.key, table) if decoded.key else table
        return self.record_columns.resolved_for(key, decoded.aliases)

    def disagreements_with(
        self, table: Schema, name: str | None = None, *, properties: Mapping[str, str] = NO_PROPERTIES
    ) -> list[str]:
        """Return why the stream's rows cannot be written to a table, a sentence for each reason.

        Args:
            table: Schema of the table.
            name: Name of one of the stream's tables of rows; by default the main table.
            properties: Properties of the table, see `resolved_for`.
        """
        if problem := self._key_problem(table, properties):
            return [f"It does not say which columns a key has: {problem}."]
        return disagreements(self.rows_for(table, name, properties=properties), table, self.kafka_columns)

    def rows_for(
        self, table: Schema, name: str | None = None, *, properties: Mapping[str, str] = NO_PROPERTIES
    ) -> Schema:
        """Return the columns of rows for one of the stream's tables, without Kafka's columns.

        Args:
            table: Schema of the table.
            name: Name of one of the stream's tables of rows; by default the main table.
            properties: Properties of the table, see `resolved_for`.

        Raises:
            FrazilError: The table does not show which columns a key has.
        """
        decoded = self.record_columns_for(table, properties).beside(self.resolved_for(table, properties).schema)
        return self.columns_in(name, self.transformed(decoded))

    @property
    def table_schema(self) -> Schema:
        """Schema of the stream's new table, if the file declares the columns.

        Raises:
            FrazilError: The columns come from a registry, or the first records.
        """
        return self.table_schema_of(self.resolved.schema)

    def table_schema_for(self, name: str) -> Schema:
        """Return the schema of one of the stream's new tables of rows; raises the errors of `table_schema`."""
        return self.table_schema_of(self.resolved.schema, name=name)

    def table_schema_beside(self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES) -> Schema:
        """Return the schema of a new table; an existing table has the key's columns that the file does not declare.

        Raises:
            FrazilError: The table lacks them; or the columns of values come from a registry, or the first records.
        """
        if self.decode.declares_all:
            return self.table_schema
        key = self.record_columns_for(table, properties).key
        return self.table_schema_of(self.resolved.schema, key.rows.fields if key else ())

    def table_schema_of(
        self, rows: Schema, key: Iterable[NestedField] | None = None, *, name: str | None = None
    ) -> Schema:
        """Return the schema of a new table for rows of a schema.

        Args:
            rows: Columns of values.
            key: Columns of the key, unless the file declares them.
            name: Name of one of the stream's tables of rows; by default the main table.

        Raises:
            FrazilError: frazil could not maintain the table, or the columns of the key are unknown.
        """
        columns, whole = self.record_columns.with_key_of(key), partial(self.table_columns, name=name)
        if self.decode.schema_source == "infer":
            # Records cannot show that a field is always present, but naming it as an identifier field does.
            rows = required_columns(rows, self.table.identifiers)
        maintained = self.maintenance.enabled
        how = {"maintained": maintained, "shaped": self.shapes}
        return new_table_schema(self.stream, self.table, columns, rows, whole, **how)

    def table_columns(self, rows: Schema, columns: RecordColumns, name: str | None = None) -> Schema:
        """Return all columns of a new table for decoded rows, including those that do not come from the value."""
        behind = self.transformed(columns.beside(self.decode.with_extra_column(rows)))
        return self.kafka_columns.added_to(self.columns_in(name, behind))

    def columns_in(self, name: str | None, rows: Schema) -> Schema:
        """Return the columns of rows that a table has, beside Kafka's; the main table has all.

        Args:
            name: Name of the table; None for the main table.
            rows: Columns after the transforms.
        """
        rows = rows if self._lane is None else self._lane.left_of(rows)
        return columns_in(self.table, self.route, self.late_tables, name, rows)

    @property
    def record_columns(self) -> RecordColumns:
        """Columns of key, headers and Kafka metadata; see `record_columns_for`."""
        return self.decode.record_columns(self.kafka_columns)

    @property
    def made_columns(self) -> frozenset[str]:
        """Columns that steps add, if the table says which columns are decoded; otherwise empty."""
        return frozenset[str]() if self.decode.declares_all else added_by(self.chain)

    @property
    def shapes(self) -> bool:
        """Whether steps change columns that no file declares, so that a table property keeps the decoded ones."""
        if self.decode.declares_all or self.evolve.clash == "shadow" or self.decode.of_table is not None:
            return False
        return self._lane is not None or changes_columns(self.chain)

    @property
    def lane_columns(self) -> LaneColumns | None:
        """Columns of rows that the table has, in the spec of one output of a stream."""
        return self._lane

    @property
    def columns_from_elsewhere(self) -> frozenset[str]:
        """Names that no column of the value may have, if the file does not declare the value's columns."""
        return self.record_columns.names | (frozenset[str]() if self.shapes else self.made_columns)

    def for_table(self, name: str) -> StreamSpec:
        """Return the spec for one output of a stream whose tables have their own columns; otherwise this spec.

        It describes that table alone, with its columns and its table of late rows. For a table of late rows, it has the
        columns of the table of the timely rows.
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
        """Hash, twelve hexadecimal digits, of everything that changes the rows, and of nothing else.

        Different ways to write the same (spaces in the schema, aliases of types, a default written out) give the same
        hash.
        """
        return config_hash(self)
