"""Problems of columns: parts of a stream's file that do not fit the columns of rows, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StructType

from jobs.config.contract.contract import Contract, Expectation
from jobs.config.contract.contract_plan import unmet_problem
from jobs.config.documents.base import Location, Problem
from jobs.config.documents.validation import suggestion
from jobs.config.services.maintenance_policy import StreamMaintenance
from jobs.config.stream.error_handling import Errors
from jobs.config.stream.source import Source
from jobs.config.stream.table import Table, kafka_columns
from jobs.config.values.decode import Decode
from jobs.config.values.mask import case_problem, path_parts
from jobs.config.values.partitioning import partition_problems, sort_column_problems
from jobs.records.schema.iceberg_schema import unread_problem
from jobs.records.schema.identifier_fields import identifier_problem
from jobs.records.schema.name_matching import alike_columns
from jobs.records.schema.needs import EvolutionPolicy

NO_TABLES: Mapping[str, Schema] = MappingProxyType({})


def column_problems_of(
    rows: Schema, decode: Decode, table: Table, *, behind_transforms: bool = False
) -> Iterator[Problem]:
    """Yields a problem for each column of key, headers or Kafka metadata whose name another column has.

    Args:
        behind_transforms: Whether transforms follow. Kafka's columns are added after them, so decoded columns may then
            have their names.
    """
    columns = decode.record_columns(kafka_columns(table.kafka_columns))
    taken = {field.name.casefold(): f"'{field.name}' is a column of decode.schema" for field in rows.fields}
    named: list[tuple[Location, str, str]] = [
        *((("decode", "key"), name, "decode.key") for name in (columns.key.names if columns.key else ())),
        *((("decode", "headers", each.name), each.name, "decode.headers") for each in columns.headers),
    ]
    if not behind_transforms:
        named += [
            (("table", "kafka_columns", each.part), each.name, "table.kafka_columns") for each in columns.kafka.columns
        ]
    for place, name, block in named:
        if problem := taken.get(name.casefold()):
            yield place, problem
        taken.setdefault(name.casefold(), f"'{name}' is a column of {block}")


def case_problems_of(rows: Schema, decode: Decode) -> list[Problem]:
    """Returns a problem for columns whose names differ only in case, if names match in any case."""
    alike = alike_columns(rows) if decode.case_insensitive else []
    return [(("decode", "case_insensitive"), f"{each}, so a field in another case is neither") for each in alike]


def partition_problems_of(rows: Schema, table: Table) -> list[Problem]:
    """Returns the problems of partition expressions, given the columns, each with its place in the spec."""
    problems = partition_problems(table.partition_by, rows, kafka_columns(table.kafka_columns))
    return [(("table", "partition_by", index), problem) for index, problem in problems]


def topic_problems_of(errors: Errors, source: Source) -> list[Problem]:
    """Returns the problems of the dead-letter topic.

    A stream that reads its own dead letters would produce them endlessly (Kafka Connect's KAFKA-9985).
    """
    if errors.topic is None or not source.reads(errors.topic.name):
        return []
    problem = f"the stream reads the topic '{errors.topic.name}' itself: each dead letter would come back as a record"
    return [(("errors", "dead_letters", "topic"), problem)]


def mask_problems_of(errors: Errors, rows: Schema) -> list[Problem]:
    """Returns a problem for each misspelt masked column."""
    problems = [case_problem(path, rows) for path in errors.mask.paths]
    place = ("errors", "dead_letters", "mask", "columns")
    return [((*place, index), problem) for index, problem in enumerate(problems) if problem]


def sort_problems_of(maintenance: StreamMaintenance, rows: Schema, table: Table) -> list[Problem]:
    """Returns a problem for each sort column of compaction that the table does not have as a primitive."""
    columns = [each.column for each in maintenance.compact.sort_by]
    problems = sort_column_problems(columns, rows, kafka_columns(table.kafka_columns))
    return [(("maintenance", "compact", "sort_by", index), problem) for index, problem in problems]


def identifier_problems_of(rows: Schema, table: Table) -> list[Problem]:
    """Returns a problem for each invalid identifier field."""
    problems = [identifier_problem(path, rows) for path in table.identifiers]
    return [(("table", "identifier_fields", index), problem) for index, problem in enumerate(problems) if problem]


def new_table_problems_of(decode: Decode, table: Table, *, shaped: bool) -> Iterator[Problem]:
    """Yields problems of keys that do not fit the origin of a new table's columns.

    Args:
        shaped: Whether steps change inferred columns.
    """
    source = decode.schema_source
    if table.force_optional and source not in ("registry", "infer"):
        yield (
            ("table", "force_optional"),
            "is for columns that a registry or the first records say; a declared one is optional without 'not null'"
            if source == "declared"
            else "is for a table that frazil makes, and decode.schema is 'table'",
        )
    if table.identifiers and source == "infer" and shaped:
        said = "is for columns that always exist, which is unknown for columns that steps make of inferred ones"
        yield ("table", "identifier_fields"), f"{said}: declare them in decode.schema"


def type_problems_of(maintenance: StreamMaintenance, rows: Schema) -> list[Problem]:
    """Returns the problems of column types in a table that frazil maintains."""
    problem = unread_problem(rows) if maintenance.enabled else None
    return [(("decode", "schema"), problem)] if problem else []


def table_sort_problems_of(rows: Schema, table: Table) -> list[Problem]:
    """Returns a problem for each sort column of a new table that it does not have as a primitive."""
    columns = [each.column for each in table.sort_by]
    problems = sort_column_problems(columns, rows, kafka_columns(table.kafka_columns))
    return [(("table", "sort_by", index), problem) for index, problem in problems]


def contract_problems_of(
    contract: Contract | None, rows: Schema, evolution: EvolutionPolicy, narrow: Mapping[str, Schema] = NO_TABLES
) -> list[Problem]:
    """Returns problems of expectations about missing columns, or columns of a type that can never meet them.

    Columns that the tables may still get from records count as present.

    Args:
        rows: All columns of the tables.
        evolution: Policy for columns that records have and the table lacks.
        narrow: Columns of tables that have fewer, by name.
    """
    if contract is None:
        return []
    blocks = [(block, expected) for block, expected in contract.blocks() if block != ("dead_letters",)]
    found: list[Problem] = []
    for block, expected in blocks:
        mine = narrow.get(block[-1], rows)
        found += (_unmet if evolution.add == "auto" else _expectation_problems)(block, expected, mine)
    return found


def letter_contract_problems_of(contract: Contract | None, letters: Schema) -> list[Problem]:
    """Returns problems of expectations about dead letters that do not fit the dead-letter table.

    Args:
        letters: All columns of the dead-letter table.
    """
    return _expectation_problems(("dead_letters",), contract.dead_letters, letters) if contract else []


def _expectation_problems(block: Location, expectations: Sequence[Expectation], rows: Schema) -> list[Problem]:
    return [*_missing_columns(block, expectations, rows), *_unmet(block, expectations, rows)]


def _unmet(block: Location, expectations: Sequence[Expectation], rows: Schema) -> list[Problem]:
    """Return problems of expectations that columns of their types can never meet."""
    found = [(index, each, unmet_problem(each, rows)) for index, each in enumerate(expectations)]
    return [
        (("contract", *block, index, each.type, *problem[0]), f"could never pass: {problem[1]}")
        for index, each, problem in found
        if problem is not None
    ]


def _missing_columns(block: Location, expectations: Sequence[Expectation], rows: Schema) -> list[Problem]:
    problems: list[Problem] = []
    for index, each in enumerate(expectations):
        place = ("contract", *block, index, each.type)
        for at, name in each.named_columns:
            if problem := _missing(name, rows):
                problems.append(((*place, *at), problem))
    return problems


def _missing(name: str, rows: Schema) -> str | None:
    level: IcebergType = rows.as_struct()
    if any(field.name == name for field in rows.fields):
        return None
    for number, part in enumerate(parts := path_parts(name)):
        fields = level.fields if isinstance(level, StructType) else ()
        found = next((field for field in fields if field.name == part), None)
        if found is None:
            near = suggestion(part, [field.name for field in fields])
            within = f" within {'.'.join(parts[:number])}" if number else ""
            return f"the rows have no column '{part}'{within}" + (f"; did you mean '{near}'?" if near else "")
        level = found.field_type
    return None
