"""Models of a stream's YAML file under ``streams/``: the stream as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated

from pydantic import PrivateAttr, model_validator
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.errors import FrazilError
from jobs.formats.decoder import LEFT_OUT
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.problems import shown_key
from jobs.formats.record_columns import RecordColumns
from jobs.schema.compatibility import disagreements
from jobs.schema.decoded_columns import DecodedColumns, decoded_columns
from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.schema.kafka_columns import KafkaColumns
from jobs.schema.name_matching import aliases_of
from jobs.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.spec.base import Location, problems_at
from jobs.spec.config_hash import ChangesRows, config_hash
from jobs.spec.contract import Contract
from jobs.spec.decode import Decode
from jobs.spec.error_handling import DeadLetters, Errors
from jobs.spec.event_time import EventTime
from jobs.spec.evolve import Evolve
from jobs.spec.fields import StreamId
from jobs.spec.groups import GroupName
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.late_tables import LateTables, late_tables
from jobs.spec.maintenance_policy import StreamMaintenance
from jobs.spec.named_tables import value_of_table
from jobs.spec.new_table import new_table_schema
from jobs.spec.parking import parks
from jobs.spec.publish import Publish, gated_policy
from jobs.spec.restart import Restart
from jobs.spec.route import RouteField
from jobs.spec.row_problems import agreement_problems, row_problems
from jobs.spec.slo import Freshness, Slo
from jobs.spec.source import Source
from jobs.spec.stream_targets import branch_in, columns_in, lane_columns, stream_targets, table_settings
from jobs.spec.table import Table
from jobs.spec.table_columns import LaneColumns
from jobs.spec.targets import TargetSpec
from jobs.spec.topic_route import decided_by_topic
from jobs.spec.transform.key_places import WithKeyColumns
from jobs.spec.transform.passing import added_by, changes_columns
from jobs.spec.transform.rules import RowRule, hashed_rules
from jobs.spec.transform.smt_step import Predicates, WithPredicates
from jobs.spec.transform.steps import Step, chain_of, hashed_steps
from jobs.spec.trigger import Every, Trigger
from jobs.transform.columns import Columns

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class StreamSpec(WithPredicates, WithKeyColumns):
    """One stream: one YAML file, one Spark streaming query, one checkpoint."""

    stream: StreamId
    description: str = ""
    owner: str | None = None
    source: Source
    decode: Decode
    transform: Annotated[tuple[Step, ...], ChangesRows(written=hashed_steps, unless=())] = ()
    predicates: Predicates
    rules: Annotated[tuple[RowRule, ...], ChangesRows(written=hashed_rules, unless=())] = ()
    table: Table
    errors: Errors = Errors()
    trigger: Trigger = Every()
    group: GroupName | None = None
    freshness: Freshness | None = None
    slo: Slo = Slo()
    restart: Restart = Restart()
    maintenance: StreamMaintenance = StreamMaintenance()
    evolve: Evolve = Evolve()
    event_time: EventTime | None = None
    contract: Contract | None = None
    publish: Publish | None = None
    route: RouteField = None
    _named: tuple[str, ...] = PrivateAttr(())
    _absent: frozenset[str] = PrivateAttr(frozenset())
    _lane: LaneColumns | None = PrivateAttr(None)
    _read_by_topic: bool = PrivateAttr(True)

    @model_validator(mode="after")
    def _parts_agree(self) -> StreamSpec:
        if problems := agreement_problems(self):
            raise problems_at(problems)
        return self

    def problems_of(self, rows: Schema, columns: RecordColumns) -> list[tuple[Location, str]]:
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
        return chain_of(self.transform).output(Columns.of(decoded)).schema if self.transform else decoded

    def problems_with(self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES) -> list[tuple[Location, str]]:
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
        return key.problem_with(kept.key or table if kept else table) if key else None

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

    @property
    def declared_rows(self) -> Schema:
        """The columns that the stream's file declares, without those that say where rows came from; else none."""
        return declared.schema if (declared := self.decode.declared) else Schema()

    @property
    def evolution(self) -> EvolutionPolicy:
        """What becomes of changes that records need of the table."""
        policy = self.evolve.policy(self.decode)
        return gated_policy(policy, self.evolve) if self.publish else policy

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
        if self.transform and self.decode.declared is not None:
            # The columns of the table are those behind the transforms; the file declares the ones before them.
            return self.resolved
        columns = self.decoded_for(table, properties)
        found = self.decode.resolved_for(columns.rows, columns.aliases)
        policy = self.evolution if evolving else self.evolution.elsewhere
        options = policy.as_options()
        if options:
            own = self.columns_from_elsewhere
            options["refused"] = tuple((f"$.{shown_key(name)}", LEFT_OUT) for name in sorted(own))
        return found.with_options(options)

    def decoded_for(self, table: Schema, properties: Mapping[str, str]) -> DecodedColumns:
        """The columns of values before the steps, given the stream's table: as it keeps them, or else as it has them.

        Args:
            table: Its schema.
            properties: Of the table.
        """
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
        if self.transform and self.decode.declares_all:
            return self.record_columns
        if self.shapes and (kept := decoded_columns(properties, self.stream)):
            return self.record_columns_of(kept, table)
        return self.record_columns.resolved_for(table, aliases_of(table, properties, self.table.name))

    def record_columns_of(self, decoded: DecodedColumns, table: Schema) -> RecordColumns:
        """The columns that rows have of the key, the headers and Kafka's own, given the decoded columns.

        Args:
            decoded: As the stream's table keeps them, or is to keep them.
            table: Its schema, which says the columns of a key that they lack.
        """
        return self.record_columns.resolved_for(decoded.key or table, decoded.aliases)

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
        decoded = self.record_columns_for(table, properties).beside(self.resolved_for(table, properties).schema)
        return disagreements(self.columns_in(name, self.transformed(decoded)), table, self.kafka_columns)

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
        key = None if self.decode.declares_all else self.record_columns_for(table, properties).key
        return self.table_schema_of(self.resolved.schema, key.rows.fields if key else None)

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
        return frozenset[str]() if self.decode.declares_all else added_by(self.transform)

    @property
    def shapes(self) -> bool:
        """Whether the table has other columns than those that are decoded and that no file declares: it keeps them."""
        if self.decode.declares_all or self.evolve.clash == "shadow" or self.decode.of_table is not None:
            return False
        return self._lane is not None or (bool(self.transform) and changes_columns(self.transform))

    @property
    def lane_columns(self) -> LaneColumns | None:
        """Which columns the table has of the rows, of a stream as the rows of one of several tables are made."""
        return self._lane

    @property
    def columns_from_elsewhere(self) -> frozenset[str]:
        """The names that no column of the value has, of a stream whose file does not declare it."""
        return self.record_columns.names | (frozenset[str]() if self.shapes else self.made_columns)

    @property
    def kafka_columns(self) -> KafkaColumns:
        """The columns that rows have of Kafka's own."""
        return kafka_columns(self.table.kafka_columns)

    @property
    def dead_letter_table(self) -> str:
        """The table of failed records: the one given, else the stream's table with ``_dead`` behind its name."""
        letters = self.errors.dead_letters
        return (letters.table if letters else None) or f"{self.table.name}_dead"

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """The tables that the stream commits to, in the order of a batch's commits: the coordinator first."""
        of_file = (self.table, self.dead_letter_table, self.publish, self.route, self._named, self.late_tables)
        return stream_targets(*of_file, self._absent)

    def with_named_tables(self, tables: Iterable[str]) -> StreamSpec:
        """The same stream with tables among its targets that have become some as records came.

        These are tables that values of its records have named. Where each table has columns of its own, also those of
        the file: they are made with the columns of their first records.

        Args:
            tables: Those that are known; what is a target anyway, or none of the route, is left aside.
        """
        to, known = self.route.to if self.route else None, tuple(tables)
        given = {self.table.name, self.dead_letter_table, *(self.route.table_names if self.route else ())}
        others = [each for each in known if each not in given and not self.has_late_rows(each)]
        named = [each for each in others if to and value_of_table(to, each) is not None]
        made = self.model_copy()
        made._named = tuple(dict.fromkeys([*self._named, *named]))
        made._absent = self._absent.difference(known)
        return made

    def with_present_tables(self, tables: Collection[str]) -> StreamSpec:
        """The same stream with those tables of its file among its targets that are some, beside those that it has.

        Args:
            tables: The targets by the coordinator's newest stamp. Only where each table has columns of its own one of
                the file may be none yet.
        """
        if not self.own_columns or self.route is None:
            return self
        made = self.model_copy()
        made._absent = frozenset({*self.route.table_names} - {self.table.name, *tables})
        return made

    @property
    def own_columns(self) -> bool:
        """Whether each table of rows has columns of its own: no file declares them, and the topic says the table."""
        return self._read_by_topic and self.topics_decide

    @property
    def topics_decide(self) -> bool:
        """Whether each table of rows has columns of its own by the file, whatever says where records go."""
        return self.route is not None and not self.decode.declares_all and decided_by_topic(self.route)

    def read_by_headers(self) -> StreamSpec:
        """The same stream, of which the headers of records, and not the topics that are read, say where they go."""
        made = self.model_copy()
        made._read_by_topic = False
        return made

    @property
    def tables_follow(self) -> bool:
        """Whether the stream's own table says the columns of all its tables of rows: neither file nor topics do.

        They are those of a route, and that of late rows. Those of a queue of a stream do so as the stream's do, though
        headers say where its records go.
        """
        if self.decode.declares_all or self.topics_decide:
            return False
        return self.route is not None or self.late_table is not None

    @property
    def grows(self) -> bool:
        """Whether tables become targets as records come for them."""
        return self.route is not None and (self.route.to is not None or self.own_columns)

    @property
    def coordinator_has_rows(self) -> bool:
        """Whether rows may go to the stream's own table."""
        return self.route is None or self.table.name in self.route.table_names

    def for_table(self, name: str) -> StreamSpec:
        """The stream as the rows of one of its tables are made: where each has columns of its own, of it alone.

        Its columns, and what is said of them, are those of that table, and the table of its late rows follows it. Of
        one of late rows they are those of the table whose late rows it has. Otherwise it is this stream.

        Args:
            name: Of the table.
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
        return made

    def without_named_tables(self, tables: Collection[str]) -> StreamSpec:
        """The same stream without tables among its targets that values of its records have named."""
        made = self.model_copy()
        made._named = tuple(each for each in self._named if each not in tables)
        return made

    @property
    def named_tables(self) -> tuple[str, ...]:
        """The tables among the targets that values of records have named, as far as they are known."""
        return self._named

    def table_settings(self, name: str) -> Table:
        """What the file says of one of the stream's tables of rows, with which it is created."""
        return table_settings(self.table, self.route, self.late_tables, name)

    @property
    def late_table(self) -> str | None:
        """The table that all late rows have of their own; None of a stream that has none, or one for each table."""
        return late.beside(late.own) if (late := self.late_tables) and late.route is None else None

    @property
    def late_tables(self) -> LateTables | None:
        """The tables of late rows; None of a stream that has none."""
        return late_tables(self.table.name, self.event_time, self.route, each=self.topics_decide)

    def late_rows_of(self, table: str) -> str | None:
        """The table whose late rows one has, of one for all the stream's own; None of one that has no late rows."""
        return late.table_of(table) if (late := self.late_tables) else None

    def has_late_rows(self, table: str) -> bool:
        """Whether a table is one of late rows."""
        return self.late_rows_of(table) is not None

    def parks(self, table: str) -> bool:
        """Whether a table that rows are routed to is parked where it is gone or refuses its commit."""
        if self.route is None or table in (self.coordinator, self.dead_letter_table) or self.has_late_rows(table):
            return False
        return table in (*self.route.table_names, *self._named) and parks(self.route, table)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the targets, in their order."""
        return tuple(target.name for target in self.targets)

    def branch_of(self, table: str) -> str:
        """The branch of a table that the stream writes; main of one that it does not name."""
        if self.publish and table == self.table.name:
            return self.publish.branch
        return branch_in(self.table, self.dead_letter_table, self.route, self.late_tables, table)

    @property
    def coordinator(self) -> str:
        """The name of the target that is stamped in every batch, before all others."""
        return self.table.name

    @property
    def continuous(self) -> bool:
        """Whether a driver runs it for as long as it is wanted; if not, it is drained when somebody asks for it."""
        return self.trigger != "available_now"

    @property
    def config_hash(self) -> str:
        """Twelve hexadecimal digits that change with whatever changes the rows, and with nothing else.

        Two ways to write the same (spaces in the schema, aliases of types, a default written out) give the same.
        """
        return config_hash(self)
