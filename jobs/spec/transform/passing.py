"""Steps over columns that no file declares: which of them go with that, and what a change of the columns means to them.

Where the steps only add columns, the table says how values are decoded: its columns are those that are decoded, and
beside them what the steps add. Each driver, and each second run, knows both from the table alone. Where they change
columns, the table keeps the decoded ones in a property (`jobs.spec.transform.shaping`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.schema.compatibility import holds, promotes
from jobs.schema.evolution import Evolution, protected_columns
from jobs.schema.iceberg_schema import schema_text, with_null
from jobs.schema.needs import Coordinates
from jobs.schema.schema_change import RefusedChange, SchemaChange, changed_schema
from jobs.spec.base import Location
from jobs.spec.transform.rules import rules_of
from jobs.spec.transform.shaping import shaped
from jobs.spec.transform.steps import Step
from jobs.transform.chain import Chain, StepProblem
from jobs.transform.columns import Columns, TransformProblem, same

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from jobs.spec.models import StreamSpec

Problems = list[tuple[Location, str]]
_NOWHERE = Coordinates("", 0, 0)


def undeclared_problems(steps: tuple[Step, ...], of_table: str | None, others: str, *, shadow: bool) -> Problems:
    """Returns the first step that cannot be taken on columns which no file declares.

    Args:
        steps: Of the file.
        of_table: What leaves columns to the table, such as `decode.schema`; None if nothing does.
        others: Where they may be from instead, as the end of a sentence.
        shadow: Whether values that their column does not take land as text in a column beside it.
    """
    hint = "or add columns with compute or set, under new names, and choose rows with where, filter and rules"
    said = not_changed_problem(of_table, others, shadow=shadow)
    for number, each in enumerate(steps):
        try:
            adds = each.transform().adds
        except TransformProblem as problem:
            return [(("transform", number, *each.place(problem.place)), problem.message)]
        if adds is None and said is not None:
            return [(("transform", number, each.names[0]), f"{said}; {hint}")]
    return []


def not_changed_problem(of_table: str | None, others: str, *, shadow: bool) -> str | None:
    """Why no step may change columns that no file declares; None if it may; arguments as of `undeclared_problems`."""
    if of_table is not None:
        return (
            f"changes or replaces columns, and with {of_table} 'table' nothing says what the table's columns were made "
            f"of: {others}"
        )
    if shadow:
        return (
            "changes or replaces columns, and may lose the texts that evolve.clash 'shadow' puts beside them: set it "
            "to dead_letter, or declare the columns in decode.schema"
        )
    return None


def added_by(chain: Chain) -> frozenset[str]:
    """The names of the columns that steps add, but for those that change others."""
    return frozenset().union(*(each.adds or () for each in chain.steps))


def changes_columns(chain: Chain) -> bool:
    """Whether a step may change a column that there is, or replace it, or give it another type."""
    return any(each.adds is None or each.retypes for each in chain.steps)


def changed_problems(decoded: Schema, behind: Columns, added: frozenset[str]) -> Problems:
    """Returns the decoded columns that steps do not leave as they are, of a file that does not declare them.

    Args:
        decoded: The columns before the steps.
        behind: Those behind them.
        added: The names that the steps add.
    """
    found = {each.name: each for each in behind}
    problems: Problems = []
    for each in decoded.fields:
        now = found.get(each.name)
        if each.name in added:
            said = f"would take the place of the column '{each.name}' that is decoded: give it another name"
            problems.append((("transform",), said))
        elif now is None or now.required != each.required or not same(now.field_type, each.field_type):
            told = "is gone" if now is None else f"is {with_null(now)}"
            said = f"the column '{each.name}' is {with_null(each)} as it is decoded, and {told} behind the steps"
            problems.append((("transform",), f"{said}: declare the columns in decode.schema"))
    return problems


def misfit_fix(spec: StreamSpec) -> str:
    """What to do where a table does not take what the stream's file makes of its records."""
    if spec.decode.declared is None:
        if spec.chain or spec.shapes:
            return f"frazil schema apply {spec.stream}, or correct streams/{spec.stream}.yaml"
        return f"alter table {spec.table.name} so that it has the column, or correct streams/{spec.stream}.yaml"
    return f"frazil schema apply {spec.stream}, or correct decode.schema in streams/{spec.stream}.yaml"


def followed(spec: StreamSpec, found: Evolution, metadata: TableMetadata) -> Evolution:
    """An evolution with what follows of it for the columns that steps add; what breaks a step or a rule is refused.

    Args:
        spec: The stream.
        found: What becomes of needs of the decoded columns.
        metadata: The table's, as it was judged.
    """
    if not found.changes or spec.decode.declared is not None or not (spec.chain or spec.rules or spec.shapes):
        return found
    if spec.shapes:
        return shaped(spec, found, metadata)
    table = metadata.schema()
    protected = protected_columns(
        table, metadata.partition_specs, metadata.sort_order_by_id(metadata.default_sort_order_id)
    )
    added = added_by(spec.chain)

    def altered(changes: Iterable[SchemaChange]) -> Schema:
        return changed_schema(table, tuple(changes), metadata.last_column_id, spec.kafka_columns.names)

    made, more, refused = list[SchemaChange](), list[SchemaChange](), list[RefusedChange]()
    for each in found.changes:
        try:
            after = altered([*made, each])
            more = list(_following(spec, after, added, protected, each))
        except _BrokenError as broken:
            refused.append(RefusedChange(each.change, each.path, broken.why, each.at or _NOWHERE))
        else:
            made += [each, *more]
    return replace(found, changes=tuple(made), refused=(*found.refused, *refused))


class _BrokenError(Exception):
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: str = why


def _following(
    spec: StreamSpec, after: Schema, added: frozenset[str], protected: Mapping[int, str], change: SchemaChange
) -> Iterator[SchemaChange]:
    """What the columns that steps add have to become, once a table is altered."""
    columns = {each.name: each for each in after.fields}
    for name, field in _rows(spec, after).items():
        if name not in added or (column := columns.get(name)) is None:
            continue
        yield from _fitted(field, column, after, protected.get, change)


def _rows(spec: StreamSpec, table: Schema) -> dict[str, NestedField]:
    decoded = Columns.of(spec.record_columns_for(table).beside(spec.resolved_for(table).schema))
    try:
        behind = spec.chain.output(decoded)
        rules_of(spec.rules).output(behind)
    except (StepProblem, TransformProblem) as problem:
        raise _BrokenError(f"a step or a rule of the stream could not be taken any more: {problem.message}") from None
    return {each.name: each for each in behind}


def _fitted(
    field: NestedField,
    column: NestedField,
    table: Schema,
    kept: Callable[[int], str | None],
    change: SchemaChange,
) -> Iterator[SchemaChange]:
    new, old = field.field_type, column.field_type
    fits = holds(new, old) if new.is_primitive and old.is_primitive else same(new, old)
    if not fits:
        told = f"the column {column.name}, which the steps make, would have to be {schema_text(new)}"
        if not (new.is_primitive and old.is_primitive and promotes(old, new)):
            raise _BrokenError(f"{told}, and Iceberg does not widen {schema_text(old)} to that")
        if why := kept(column.field_id):
            raise _BrokenError(f"{told}, and {why}")
        yield SchemaChange("widen", (column.name,), new, change.at)
    if column.required and not field.required:
        if column.field_id in table.identifier_field_ids:
            told = f"the column {column.name}, which the steps make, would be null"
            raise _BrokenError(f"{told}, and it is an identifier field of the table")
        yield SchemaChange("relax", (column.name,), None, change.at)
