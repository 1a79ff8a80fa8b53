"""Models of a stream's YAML file under ``streams/``: the stream as data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.formats.decoder import KEY_PATH, LEFT_OUT
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.problems import shown_key
from jobs.formats.record_columns import RecordColumns
from jobs.schema.compatibility import disagreements
from jobs.schema.evolution_policy import EvolutionPolicy
from jobs.schema.identifier_fields import optional_columns, with_identifier_fields
from jobs.schema.kafka_columns import KafkaColumns
from jobs.schema.name_matching import aliases_of
from jobs.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.schema.spark_types import unread_problem
from jobs.spec.base import Location, SpecModel, problems_at
from jobs.spec.column_problems import (
    case_problems_of,
    column_problems_of,
    identifier_problems_of,
    mask_problems_of,
    new_table_problems_of,
    partition_problems_of,
    sort_problems_of,
    table_sort_problems_of,
    topic_problems_of,
    type_problems_of,
)
from jobs.spec.config_hash import config_hash
from jobs.spec.decode import Decode
from jobs.spec.error_handling import Errors
from jobs.spec.evolve import Evolve, evolve_problems
from jobs.spec.fields import PositiveInt, StreamId
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.maintenance_policy import StreamMaintenance
from jobs.spec.restart import Restart
from jobs.spec.source import Source
from jobs.spec.table import Table
from jobs.spec.targets import TargetSpec
from jobs.spec.trigger import Every, Trigger
from jobs.spec.units import Duration

NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Freshness(SpecModel):
    """How long ago the table may last have been complete. At least a minute; ``warn`` is shorter than ``fail``."""

    warn: Duration
    fail: Duration

    @model_validator(mode="after")
    def _in_order(self) -> Freshness:
        problems: list[tuple[Location, str]] = []
        short = [name for name in ("warn", "fail") if getattr(self, name) < timedelta(seconds=60)]
        problems.extend(((name,), "must be at least 60s") for name in short)
        if self.warn >= self.fail:
            problems.append((("warn",), "must be shorter than fail"))
        if problems:
            raise problems_at(problems)
        return self


def _json_path(value: str) -> str:
    if value not in ("$", KEY_PATH) and not value.startswith(("$.", f"{KEY_PATH}.")):
        raise ValueError("must be the path of a key such as $.debug, or $ for all")
    return value


class Slo(SpecModel):
    """What is promised of a stream; a check turns red where it is not kept.

    Args:
        lag_records: The most records that may wait.
        lag_time: The longest that the table may be behind the log; without it ``freshness.fail``, if there is one.
            Without any of the three, 15 minutes beyond the trigger, which only warns.
        dead_letter_ratio: The largest share of dead letters within the last minutes; without it
            ``errors.stop_above.ratio``, or 5 %.
        unknown_fields: Paths of keys that are left out on purpose, such as ``$.debug``, with all below them; ``$`` is
            every key that the schema does not declare.
    """

    lag_records: PositiveInt | None = None
    lag_time: Duration | None = None
    dead_letter_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    unknown_fields: tuple[Annotated[str, AfterValidator(_json_path)], ...] = ()

    def leaves_out(self, path: str) -> bool:
        """Whether a key that is not declared is left out on purpose."""
        below = tuple(f"{each}{mark}" for each in self.unknown_fields for mark in ".[{")
        return path in self.unknown_fields or path.startswith(below)


class StreamSpec(SpecModel):
    """One stream: one YAML file, one Spark streaming query, one checkpoint."""

    stream: StreamId
    description: str = ""
    owner: str | None = None
    source: Source
    decode: Decode
    table: Table
    errors: Errors = Errors()
    trigger: Trigger = Every()
    freshness: Freshness | None = None
    slo: Slo = Slo()
    restart: Restart = Restart()
    maintenance: StreamMaintenance = StreamMaintenance()
    evolve: Evolve = Evolve()

    @model_validator(mode="after")
    def _parts_agree(self) -> StreamSpec:
        declared = self.decode.declared
        problems = self.problems_of(declared.schema) if declared else []
        if self.dead_letter_table == self.table.name:
            problems.append((("errors", "dead_letters", "table"), "must be another table than the stream's own"))
        if declared:
            problems.extend(identifier_problems_of(self.table_columns(declared.schema), self.table))
        problems.extend(new_table_problems_of(self.decode, self.table))
        problems.extend(topic_problems_of(self.errors, self.source))
        problems.extend(evolve_problems(self.evolve, self.decode, self.stream))
        if problems:
            raise problems_at(problems)
        return self

    def problems_of(self, rows: Schema) -> list[tuple[Location, str]]:
        """Returns what the file says of columns that rows do not have so, each with its place in the file.

        Args:
            rows: Their columns, without those that say where they came from.
        """
        every = self.record_columns.beside(rows)
        return [
            *column_problems_of(rows, self.decode, self.table),
            *case_problems_of(rows, self.decode),
            *partition_problems_of(every, self.table),
            *mask_problems_of(self.errors, every),
            *sort_problems_of(self.maintenance, every, self.table),
            *type_problems_of(self.maintenance, every),
            *table_sort_problems_of(every, self.table),
        ]

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
        declared = self.decode.declared
        return declared.schema if declared else Schema()

    @property
    def evolution(self) -> EvolutionPolicy:
        """What becomes of changes that records need of the table."""
        return self.evolve.policy(self.decode)

    def resolved_for(
        self, table: Schema, properties: Mapping[str, str] = NO_PROPERTIES, *, evolving: bool = False
    ) -> ResolvedSchema:
        """The rows that values become, and their decoder, given the stream's table.

        Args:
            table: Its schema.
            properties: Of the table; its name mapping tells which further names columns have in records. What only
                asks for the columns goes without.
            evolving: For the stream's driver, which may alter the table.
        """
        mine = self.record_columns.left_of(table).fields
        found = self.decode.resolved_for(
            Schema(*(each for each in mine if not each.name.lower().startswith(KAFKA_COLUMN_PREFIX))),
            aliases_of(table, properties, self.table.name),
        )
        policy = self.evolution if evolving else self.evolution.elsewhere
        options = policy.as_options()
        if options:
            own = self.record_columns.kafka.names | {each.name for each in self.record_columns.decoded}
            options["refused"] = tuple((f"$.{shown_key(name)}", LEFT_OUT) for name in sorted(own))
        return found.with_options(options)

    def disagreements_with(self, table: Schema) -> list[str]:
        """Why the stream's rows cannot be written to a table of a schema, a sentence for each reason."""
        return disagreements(self.record_columns.beside(self.resolved_for(table).schema), table, self.kafka_columns)

    @property
    def table_schema(self) -> Schema:
        """The schema with which the stream's table is created, of a stream whose file declares its columns.

        Raises:
            FrazilError: A registry, or the first records, say.
        """
        return self.table_schema_of(self.resolved.schema)

    def table_schema_of(self, rows: Schema) -> Schema:
        """The schema of a new table for rows of a schema.

        Raises:
            FrazilError: frazil could not maintain it.
        """
        every = self.record_columns.beside(rows)
        if self.maintenance.enabled and (problem := unread_problem(every)):
            raise FrazilError(f"stream {self.stream}: table {self.table.name} is not made: {problem}.")
        if self.table.force_optional:
            rows = optional_columns(rows, self.table.identifiers)
        schema = self.table_columns(rows)
        if problems := identifier_problems_of(schema, self.table):
            said = "; ".join(problem for _, problem in problems)
            raise FrazilError(
                f"stream {self.stream}: table {self.table.name} is not made: table.identifier_fields: {said}.",
                fix=f"correct table.identifier_fields in streams/{self.stream}.yaml",
            )
        return with_identifier_fields(schema, self.table.identifier_names) if self.table.identifiers else schema

    def table_columns(self, rows: Schema) -> Schema:
        """All columns of a new table for rows of a schema."""
        return self.kafka_columns.added_to(self.record_columns.beside(self.decode.with_extra_column(rows)))

    @property
    def record_columns(self) -> RecordColumns:
        """The columns that rows have of the key, the headers and Kafka's own."""
        return self.decode.record_columns(self.kafka_columns)

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
        table = self.table
        return (
            TargetSpec(table.name, "rows", True, table.partition_by, table.properties, self.kafka_columns.coordinates),
            TargetSpec(self.dead_letter_table, "dead_letters"),
        )

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the targets, in their order."""
        return tuple(target.name for target in self.targets)

    @property
    def coordinator(self) -> str:
        """The name of the target that is stamped in every batch, before all others."""
        return next(target.name for target in self.targets if target.coordinator)

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
