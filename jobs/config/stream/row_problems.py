"""Problems of a stream's file as a whole: parts that do not fit each other, each with its place in the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from jobs.config.contract.contract import contract_table_problems
from jobs.config.documents.base import Check, Problem, collect
from jobs.config.steps.shaping import changed_problems, not_changed_problem, undeclared_problems
from jobs.config.steps.steps import rule_problems, transform_problems
from jobs.config.stream.changes import Changes
from jobs.config.stream.column_problems import (
    case_problems_of,
    column_problems_of,
    contract_problems_of,
    identifier_problems_of,
    mask_problems_of,
    new_table_problems_of,
    partition_problems_of,
    sort_problems_of,
    table_sort_problems_of,
    topic_problems_of,
    type_problems_of,
)
from jobs.config.stream.event_time import event_time_problems_of, freshness_problems
from jobs.config.stream.evolve import evolve_problems, publish_problems
from jobs.config.stream.mirror import keep_problems, mirror_problems
from jobs.config.stream.route import Route, expression_text_problems, route_problems
from jobs.config.stream.stream_targets import (
    late_park_problems,
    late_problems,
    late_table_problems,
    park_problems,
    route_table_problems,
)
from jobs.config.stream.table import Table, kafka_columns
from jobs.config.stream.topic_route import (
    chosen_columns_problems,
    followers_columns_problems,
    topic_route_problems,
)
from jobs.config.values.decode import Decode
from jobs.config.values.value_format import SOURCES
from jobs.records.formats.primitive.block import COLUMN_TYPES
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.transforms.change_events.changelog import KEY
from jobs.records.transforms.columns import Columns, TransformProblem

if TYPE_CHECKING:
    from jobs.config.stream.models import StreamSpec


_KAFKA = ("topic", "partition", "offset", "timestamp")


def changes_problems(
    changes: Changes | None, decode: Decode, table: Table, route: Route | None, *, own_columns: bool
) -> Iterator[Problem]:
    """Yields parts of a stream's file that do not fit a changelog, each with its place.

    Args:
        changes: Block `changes`; None if the stream has none.
        decode: Block `decode`.
        table: Block `table`.
        route: Block `route`; None if the stream has none.
        own_columns: Whether each table has its own columns, so that records are routed before they are decoded.
    """
    if changes is None:
        return
    declared = {each.name for each in decode.declared.schema.fields} if decode.declared else None
    before = "before-image" if changes.envelope == "dms" else "before"
    if changes.before and declared is not None and before not in declared:
        yield ("changes", "before"), f"keeps '{before}', which decode.schema does not declare"
    if decode.format in COLUMN_TYPES:
        yield ("changes",), f"takes records with fields; values of the format {decode.format} have none"
    if (key := decode.key) is not None:
        names = key.columns.names if key.columns.is_resolved or key.columns.into else ()
        if tuple(names) != (KEY,):
            said = f"must be {KEY} beside changes, so that the changelog has the records' keys"
            yield ("decode", "key", "into"), said
    elif changes.needs_keys and not decode.declares_all:
        said = f"{changes.envelope} identifies the row by the record's key"
        yield ("changes", "envelope"), f"{said}: {_key_form(decode, changes)}"
    columns = kafka_columns(table.kafka_columns)
    if lost := [part for part in _KAFKA if getattr(columns, part) is None]:
        said = "is needed beside changes: it identifies and orders the changes of a row"
        yield ("table", "kafka_columns", *(lost[:1] if table.kafka_columns is not False else ())), said
    if changes.keeps_tombstones and route is not None:
        yield from _tombstone_problems(route, own_columns=own_columns)


def _key_form(decode: Decode, changes: Changes) -> str:
    """Return the form to write for keys in the format of the values."""
    columns = '"id string"' if changes.envelope == "mongo" and decode.format == "json" else decode.schema_source
    return f"write decode: {{…, key: {{format: {decode.format}, schema: {columns}, into: {KEY}}}}}"


def _tombstone_problems(route: Route, *, own_columns: bool) -> list[Problem]:
    """Return problems of a route that would lose records without a value."""
    said = "upsert, of which records without a value are rows"
    if own_columns:
        return [(("route",), f"over columns that no file declares does not go with {said}: give each topic a stream")]
    parks: list[Problem] = [
        (place, f"park does not go with {said}: records for a suspended table are kept with their values")
        for place, answer in (
            (("route", "on_table_error"), route.on_table_error),
            *((("route", "tables", at, "on_table_error"), each.on_table_error) for at, each in enumerate(route.tables)),
        )
        if answer == "park"
    ]
    return parks[:1]


Problems = list[Problem]


def agreement_checks(spec: StreamSpec) -> tuple[Check, ...]:
    """Return the independent checks of whether parts of a stream's file fit together."""
    return (
        lambda: _undeclared_problems(spec),
        lambda: changes_problems(
            *(spec.changes, spec.decode, spec.table, spec.route),
            own_columns=spec.route is not None and spec.topics_decide,
        ),
        lambda: _declared_problems(spec),
        lambda: _letters_apart(spec),
        lambda: new_table_problems_of(spec.decode, spec.table, shaped=spec.shapes),
        lambda: topic_problems_of(spec.errors, spec.source),
        lambda: evolve_problems(spec.evolve, spec.decode, spec.stream),
        lambda: freshness_problems(spec.freshness, spec.event_time),
        lambda: publish_problems(spec.publish, spec.contract, spec.table),
        lambda: late_problems(spec.late_tables, spec.table, spec.dead_letter_table, spec.route, spec.publish),
        lambda: contract_table_problems(spec.contract, spec.table.name, spec.dead_letter_table, _further_tables(spec)),
        lambda: route_problems(
            *(spec.route, spec.table, spec.dead_letter_table),
            ["publish"] if spec.publish is not None else [],
        ),
        lambda: park_problems(spec.route, spec.table, spec.errors.mask),
        lambda: _mirror_problems(spec),
        lambda: keep_problems(spec.mirrors) if spec.changes is not None and spec.changes.keep is not None else [],
        lambda: _follower_problems(spec),
        lambda: _lane_problems(spec),
    )


def _letters_apart(spec: StreamSpec) -> Problems:
    if spec.dead_letter_table != spec.table.name:
        return []
    return [(("errors", "dead_letters", "table"), "must be another table than the stream's own")]


def _further_tables(spec: StreamSpec) -> list[str]:
    return [each.name for each in spec.targets if each.role == "rows" and not each.coordinator]


def _mirror_problems(spec: StreamSpec) -> Iterator[Problem]:
    if not spec.mirrors:
        return iter(())
    return mirror_problems(
        *(spec.mirrors, spec.table, spec.target_names),
        changes=spec.changes is not None,
        gated=spec.publish is not None,
        routed=spec.route is not None,
        lanes=spec.topics_decide,
    )


def _follower_problems(spec: StreamSpec) -> Problems:
    if spec.route is None or not spec.tables_follow:
        return []
    shadow = spec.evolve.clash == "shadow"
    return [
        *expression_text_problems(spec.route),
        *followers_columns_problems(spec.route, spec.decode, shadow=shadow),
    ]


def _lane_problems(spec: StreamSpec) -> Problems:
    if spec.route is None or not spec.own_columns:
        return []
    of_route = (spec.route, spec.source, spec.transform, spec.table)
    shadow = spec.evolve.clash == "shadow"
    return [
        *topic_route_problems(*of_route, spec.decode, shadow=shadow),
        *late_park_problems(spec.route, spec.event_time),
    ]


def _declared_problems(spec: StreamSpec) -> Problems:
    """Return the problems of a file with the columns that it declares."""
    declared = spec.decode.declared
    if declared is None:
        return []
    if not spec.decode.declares_all:
        return collect(
            lambda: column_problems_of(declared.schema, spec.decode, spec.table),
            lambda: case_problems_of(declared.schema, spec.decode),
        )
    return collect(
        lambda: row_problems(spec, declared.schema, spec.record_columns),
        lambda: _identifier_problems(spec, declared.schema),
        lambda: _contract_problems(spec, declared.schema),
    )


def _identifier_problems(spec: StreamSpec, rows: Schema) -> Problems:
    if not spec.table.identifiers or (every := _all_columns(spec, rows)) is None:
        return []
    return identifier_problems_of(every, spec.table)


def _contract_problems(spec: StreamSpec, rows: Schema) -> Problems:
    if spec.contract is None or (every := _all_columns(spec, rows)) is None:
        return []
    return contract_problems_of(spec.contract, every, spec.evolution, _narrow(spec, every))


def _all_columns(spec: StreamSpec, rows: Schema) -> Schema | None:
    """Return all columns of a new table, given those of values; None if a wrong step makes them unknown."""
    decoded = spec.record_columns.beside(spec.decode.with_extra_column(rows))
    behind, _ = transform_problems(spec.chain, spec.transform, decoded)
    if behind is None:
        return None
    return spec.kafka_columns.added_to(spec.columns_in(None, _without_kafka_names(spec, behind.schema)))


def _narrow(spec: StreamSpec, every: Schema) -> dict[str, Schema]:
    """Return the columns of each further table in a contract, by name."""
    names = spec.contract.tables if spec.contract is not None and spec.route is not None else ()
    kafka = spec.kafka_columns
    rows = Schema(*(each for each in every.fields if each.name not in kafka.names))
    narrow: dict[str, Schema] = {}
    for name in names:
        # Problems of a table's columns are reported by their own check.
        with contextlib.suppress(TransformProblem):
            narrow[name] = kafka.added_to(spec.columns_in(name, rows))
    return narrow


def row_problems(spec: StreamSpec, rows: Schema, columns: RecordColumns) -> Problems:
    """Returns the problems of the file with the columns of rows; see `StreamSpec.problems_of`."""
    every = columns.beside(rows)
    return collect(
        lambda: column_problems_of(rows, spec.decode, spec.table, behind_transforms=bool(spec.chain)),
        lambda: case_problems_of(rows, spec.decode),
        lambda: mask_problems_of(spec.errors, every),
        lambda: _problems_behind_steps(spec, rows, columns, every),
    )


def _problems_behind_steps(spec: StreamSpec, rows: Schema, columns: RecordColumns, every: Schema) -> Problems:
    if not spec.chain and not spec.rules:
        return _row_table_problems(spec, _without_kafka_names(spec, every))
    behind, wrong = transform_problems(spec.chain, spec.transform, every)
    if behind is None:
        return wrong
    if not spec.decode.declares_all and not spec.shapes and not wrong:
        wrong = changed_problems(every, behind, spec.made_columns)
    if not wrong:
        wrong = _kept_problems(spec, rows, columns, behind)
    return [
        *wrong,
        *collect(
            lambda: rule_problems(spec.rules, behind),
            lambda: kafka_column_problems(behind.schema, columns),
            lambda: _row_table_problems(spec, _without_kafka_names(spec, behind.schema)),
        ),
    ]


def _event_time_problems(spec: StreamSpec, every: Schema) -> Problems:
    if spec.event_time is None:
        return []
    return event_time_problems_of(spec.event_time, spec.kafka_columns.added_to(every))


def _without_kafka_names(spec: StreamSpec, rows: Schema) -> Schema:
    """Return the rows without columns that have names of Kafka's columns, which another check reports."""
    names = {name.casefold() for name in spec.kafka_columns.names}
    if all(each.name.casefold() not in names for each in rows.fields):
        return rows
    return Schema(*(each for each in rows.fields if each.name.casefold() not in names))


def _row_table_problems(spec: StreamSpec, every: Schema) -> Problems:
    """Return the problems of the file with the columns of tables, given all columns of the rows after the steps."""
    if (lane := spec.lane_columns) is not None:
        if problem := lane.problem_with(every):
            return [problem]
        every = lane.left_of(every)
    # The driver adds the column of kept fields with the first record that needs it.
    chosen = spec.decode.with_extra_column(every)
    return collect(
        lambda: partition_problems_of(every, spec.table),
        lambda: sort_problems_of(spec.maintenance, every, spec.table),
        lambda: type_problems_of(spec.maintenance, every),
        lambda: table_sort_problems_of(every, spec.table),
        lambda: _event_time_problems(spec, every),
        lambda: _further_table_problems(spec, every),
        lambda: chosen_columns_problems(spec.route, chosen, spec.table, spec.event_time, spec.maintenance),
    )


def _further_table_problems(spec: StreamSpec, every: Schema) -> Problems:
    found = [
        *route_table_problems(spec.route, every, spec.table),
        *late_table_problems(spec.late_tables, every, spec.table),
    ]
    if spec.decode.declares_all:
        return found
    # Such a file declares no columns: they come from a registry, the records or the table.
    return [(place, said.replace(" in decode.schema", " among the stream's columns")) for place, said in found]


def kafka_column_problems(rows: Schema, columns: RecordColumns) -> Problems:
    """Returns a problem for each of Kafka's columns whose name a row's column has after the transforms."""
    taken = {field.name.casefold() for field in rows.fields}
    return [
        (("table", "kafka_columns", each.part), f"'{each.name}' is a column behind the transforms")
        for each in columns.kafka.columns
        if each.name.casefold() in taken
    ]


def _undeclared_problems(spec: StreamSpec) -> Problems:
    """Return problems of steps that need columns declared in the file."""
    if spec.decode.declares_all or not spec.chain:
        return []
    of_table = spec.decode.of_table
    key = spec.decode.key
    kind = key.format if of_table == "decode.key.schema" and key else spec.decode.format
    known = [f"'{each}'" for each in SOURCES.get(kind, ()) if each in ("registry", "infer")]
    others = f"declare them there, or write {' or '.join(known)}" if known else "declare them there"
    shadow = spec.evolve.clash == "shadow"
    if spec.changes is not None and (said := not_changed_problem(of_table, others, shadow=shadow)) is not None:
        return [(("changes",), said)]
    return undeclared_problems(spec.transform, of_table, others, shadow=shadow)


def _kept_problems(spec: StreamSpec, rows: Schema, columns: RecordColumns, behind: Columns) -> Problems:
    """Return a problem if steps lose fields without a column although the stream keeps them."""
    if spec.decode.unknown_fields != "keep" or not (spec.decode.declared or spec.shapes):
        return []
    found, wrong = transform_problems(spec.chain, spec.transform, columns.beside(spec.decode.with_extra_column(rows)))
    if wrong:
        return wrong
    if any(each.name == EXTRA_COLUMN and isinstance(each.field_type, StringType) for each in found or behind):
        return []
    said = f"is keep, and behind the steps there is no text column {EXTRA_COLUMN}, for the kept values"
    return [(("decode", "unknown_fields"), f"{said}: let the steps keep it, or say ignore, or fail")]
