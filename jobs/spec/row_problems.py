"""Problems of a stream's file as a whole: what its parts say of each other, each with its place in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from jobs.formats.record_columns import RecordColumns
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.spec.base import Location
from jobs.spec.change_problems import changes_problems
from jobs.spec.column_problems import (
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
from jobs.spec.contract import contract_table_problems
from jobs.spec.event_time import event_time_problems_of
from jobs.spec.evolve import evolve_problems
from jobs.spec.mirror import keep_problems, mirror_problems
from jobs.spec.parking import late_park_problems, park_problems
from jobs.spec.publish import publish_problems
from jobs.spec.route import expression_text_problems, route_problems
from jobs.spec.route_columns import chosen_columns_problems, followers_columns_problems
from jobs.spec.slo import freshness_problems
from jobs.spec.stream_targets import late_problems, late_table_problems, route_table_problems
from jobs.spec.topic_route import topic_route_problems
from jobs.spec.transform.passing import changed_problems, not_changed_problem, undeclared_problems
from jobs.spec.transform.rules import rule_problems
from jobs.spec.transform.steps import transform_problems
from jobs.spec.value_format import SOURCES
from jobs.transform.columns import Columns

if TYPE_CHECKING:
    from jobs.spec.models import StreamSpec

Problems = list[tuple[Location, str]]


def agreement_problems(spec: StreamSpec) -> Problems:
    """Returns where parts of a stream's file do not go together."""
    decode, table = spec.decode, spec.table
    declared = decode.declared
    problems: Problems = [
        *_undeclared_problems(spec),
        *changes_problems(spec.changes, decode, table, spec.route, own_columns=spec.topics_decide),
    ]
    wrong = bool(problems)
    if declared and decode.declares_all:
        found = row_problems(spec, declared.schema, spec.record_columns)
        problems.extend(found)
        wrong = wrong or bool(found)
    elif declared:
        problems.extend(column_problems_of(declared.schema, decode, table))
        problems.extend(case_problems_of(declared.schema, decode))
    if spec.dead_letter_table == table.name:
        problems.append((("errors", "dead_letters", "table"), "must be another table than the stream's own"))
    if declared and decode.declares_all and not (spec.chain and wrong):
        every = spec.table_columns(declared.schema, spec.record_columns)
        problems.extend(identifier_problems_of(every, table))
        narrow = {} if wrong else _narrow(spec, every)
        problems.extend(contract_problems_of(spec.contract, every, spec.evolution, narrow))
    problems.extend(new_table_problems_of(decode, table))
    problems.extend(topic_problems_of(spec.errors, spec.source))
    problems.extend(evolve_problems(spec.evolve, decode, spec.stream))
    problems.extend(freshness_problems(spec.freshness, spec.event_time))
    problems.extend(publish_problems(spec.publish, spec.contract, table))
    letters, publish = spec.dead_letter_table, spec.publish
    problems.extend(late_problems(spec.late_tables, table, letters, spec.route, publish))
    further = [each.name for each in spec.targets if each.role == "rows" and not each.coordinator]
    problems.extend(contract_table_problems(spec.contract, table.name, letters, further))
    beside = {"publish": publish}
    given = [name for name, block in beside.items() if block is not None]
    problems.extend(route_problems(spec.route, table, letters, given))
    problems.extend(park_problems(spec.route, table, spec.errors.mask))
    routed = {"routed": spec.route is not None, "lanes": spec.topics_decide}
    of_file = {"changes": spec.changes is not None, "gated": publish is not None, **routed}
    problems.extend(mirror_problems(spec.mirrors, table, spec.target_names, **of_file))
    if spec.changes is not None and spec.changes.keep is not None:
        problems.extend(keep_problems(spec.mirrors))
    if spec.tables_follow and spec.route is not None:
        problems.extend(expression_text_problems(spec.route))
        shadow = spec.evolve.clash == "shadow"
        problems.extend(followers_columns_problems(spec.route, decode, shadow=shadow))
    if spec.own_columns and spec.route is not None:
        of_route = (spec.route, spec.source, spec.transform, table)
        shadow = spec.evolve.clash == "shadow"
        problems.extend(topic_route_problems(*of_route, decode, shadow=shadow))
        problems.extend(late_park_problems(spec.route, spec.event_time))
    return problems


def _narrow(spec: StreamSpec, every: Schema) -> dict[str, Schema]:
    """The columns of those tables that have columns of their own, of which a contract speaks."""
    names = spec.contract.tables if spec.contract is not None and spec.route is not None else ()
    kafka = spec.kafka_columns
    rows = Schema(*(each for each in every.fields if each.name not in kafka.names))
    return {name: kafka.added_to(spec.columns_in(name, rows)) for name in names}


def row_problems(spec: StreamSpec, rows: Schema, columns: RecordColumns) -> Problems:
    """Returns what the file says of columns that rows do not have so; see `StreamSpec.problems_of`."""
    every = columns.beside(rows)
    problems = [
        *column_problems_of(rows, spec.decode, spec.table, behind_transforms=bool(spec.chain)),
        *case_problems_of(rows, spec.decode),
        *mask_problems_of(spec.errors, every),
    ]
    if spec.chain or spec.rules:
        behind, wrong = transform_problems(spec.chain, spec.transform, every)
        if behind is None or problems:
            return [*problems, *wrong]
        if (
            not spec.decode.declares_all
            and not spec.shapes
            and (wrong := changed_problems(every, behind, spec.made_columns))
        ):
            return wrong
        if wrong := _kept_problems(spec, rows, columns, behind):
            return wrong
        every = behind.schema
        if wrong := rule_problems(spec.rules, behind):
            return wrong
        if taken := kafka_column_problems(every, columns):
            return taken
    if (lane := spec.lane_columns) is not None:
        if problem := lane.problem_with(every):
            return [*problems, problem]
        every = lane.left_of(every)
    # The driver adds the column of what is kept with the first record that needs it.
    chosen = spec.decode.with_extra_column(every)
    return [
        *problems,
        *partition_problems_of(every, spec.table),
        *sort_problems_of(spec.maintenance, every, spec.table),
        *type_problems_of(spec.maintenance, every),
        *table_sort_problems_of(every, spec.table),
        *event_time_problems_of(spec.event_time, spec.kafka_columns.added_to(every)),
        *_further_table_problems(spec, every),
        *chosen_columns_problems(spec.route, chosen, spec.table, spec.event_time, spec.maintenance),
    ]


def _further_table_problems(spec: StreamSpec, every: Schema) -> Problems:
    found = [
        *route_table_problems(spec.route, every, spec.table),
        *late_table_problems(spec.late_tables, every, spec.table),
    ]
    if spec.decode.declares_all:
        return found
    # Such a file declares none: they are from a registry, the records or the table.
    return [(place, said.replace(" in decode.schema", " among the stream's columns")) for place, said in found]


def kafka_column_problems(rows: Schema, columns: RecordColumns) -> Problems:
    """Returns the columns of Kafka's own whose names rows have behind the transforms."""
    taken = {field.name.casefold() for field in rows.fields}
    return [
        (("table", "kafka_columns", each.part), f"'{each.name}' is a column behind the transforms")
        for each in columns.kafka.columns
        if each.name.casefold() in taken
    ]


def _undeclared_problems(spec: StreamSpec) -> Problems:
    """The steps that need columns which the file declares."""
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
    """Whether the steps lose what no column takes, of a stream that keeps it."""
    if spec.decode.unknown_fields != "keep" or not (spec.decode.declared or spec.shapes):
        return []
    found, wrong = transform_problems(spec.chain, spec.transform, columns.beside(spec.decode.with_extra_column(rows)))
    if wrong:
        return wrong
    if any(each.name == EXTRA_COLUMN and isinstance(each.field_type, StringType) for each in found or behind):
        return []
    said = f"is keep, and behind the steps there is no text column {EXTRA_COLUMN}, which holds what is kept"
    return [(("decode", "unknown_fields"), f"{said}: let the steps keep it, or say ignore, or fail")]
