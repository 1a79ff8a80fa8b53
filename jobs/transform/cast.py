"""Cast: columns get another type, exactly; a value that it does not hold makes its row fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg import types as ice

from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.schema.tokens import SchemaTextError
from jobs.transform.cast_values import cast_problem, cast_values
from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.nested import changed_at, retyped_at
from jobs.transform.path import Path, field_at, selected, shown
from jobs.transform.transform import Applied, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class Cast(Transform):
    """Columns in other types.

    Attributes:
        types: Paths of columns, with wildcards, and types in the words of schema text, such as ``decimal(12,2)``.
    """

    name: ClassVar[str] = "cast"
    types: tuple[tuple[str, str], ...]

    def output(self, columns: Columns) -> Columns:
        """The same columns in other types.

        Raises:
            TransformProblem: A type is none, or what stands in a column is not cast to it.
        """
        targets = self._targets(columns)
        for path, (target, text) in targets.items():
            source = field_at(columns, path).field_type
            if problem := cast_problem(source, target):
                raise TransformProblem(f"the column '{'.'.join(path)}' of type {problem}", (text,))
        for path in targets:
            columns = retyped_at(columns, [path], lambda _, at=path: targets[at][0])
        return columns

    def apply(self, rows: Rows) -> Applied:
        """The values as they are in the new types."""
        failures = []
        for path, (target, _) in self._targets(rows.columns).items():
            into = retyped_at(rows.columns, [path], lambda _, kind=target: kind)
            arrays, bad = changed_at(
                rows, [path], lambda array, field, kind=target: cast_values(array, field.field_type, kind), into
            )
            rows = rows.with_batch(into, arrays)
            failures.extend(bad)
        return settled(rows, failures)

    def _targets(self, columns: Columns) -> dict[Path, tuple[ice.IcebergType, str]]:
        found: dict[Path, tuple[ice.IcebergType, str]] = {}
        for text, kind in self.types:
            try:
                paths = selected(columns, [text])
            except TransformProblem as problem:
                raise TransformProblem(problem.message, (text,)) from None
            for path in paths:
                if path in found:
                    raise TransformProblem(f"the column {shown(path)[2:]} is cast twice", (text,))
                found[path] = (type_of(kind, (text,)), text)
        return found


def type_of(text: str, place: tuple[str, ...] = ()) -> ice.IcebergType:
    """The type that a text names in the words of schema text.

    Raises:
        TransformProblem: It names none.
    """
    try:
        fields = iceberg_schema(parse_schema(f"c {text}")).fields
    except SchemaTextError as problem:
        raise TransformProblem(problem.message, place) from None
    if len(fields) != 1 or fields[0].required:
        raise TransformProblem(f"'{text}' is no type such as long or decimal(12,2)", place)
    return fields[0].field_type
