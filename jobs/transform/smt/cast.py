"""Cast of Kafka Connect: columns in Connect's types."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg import types as ice

from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, no_column, retyped
from jobs.transform.smt.cast_values import KINDS, cast_values
from jobs.transform.smt.known import Known
from jobs.transform.smt.properties import Properties
from jobs.transform.transform import Applied, RowFailure, Rows, Transform, settled

_CAST = (
    *(ice.IntegerType, ice.LongType, ice.FloatType, ice.DoubleType, ice.DecimalType, ice.BooleanType, ice.StringType),
    *(ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestamptzType),
)


@dataclass(frozen=True, slots=True)
class ConnectCast(Transform):
    """Columns in other types, as Connect makes them.

    Attributes:
        types: Columns at the top, each with a type of Connect.
        lenient: Whether a value that does not fit is changed as Connect changes it.
    """

    name: ClassVar[str] = "cast"
    types: tuple[tuple[str, str], ...]
    lenient: bool

    @classmethod
    def of(cls, types: Sequence[tuple[str, str]], *, lenient: bool) -> ConnectCast:
        """The cast.

        Args:
            types: Columns, each with the name of a type in whatever case.
            lenient: As of the step.

        Raises:
            TransformProblem: Connect has no such type.
        """
        for _, target in types:
            if target.lower() not in KINDS:
                near = difflib.get_close_matches(target.lower(), KINDS, n=1, cutoff=0.5)
                hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(KINDS)}"
                raise TransformProblem(f"'{target}' in spec is no type that Cast makes; {hint}", ("spec",))
        return cls(tuple((name, target.lower()) for name, target in types), lenient)

    def output(self, columns: Columns) -> Columns:
        """The same columns in other types."""
        wanted = dict(self.types)
        for name, target in self.types:
            kind = columns.field(name, ("spec",)).field_type
            if not isinstance(kind, _CAST) and not (isinstance(kind, ice.BinaryType) and target == "string"):
                raise TransformProblem(
                    f"the column '{name}' is {schema_text(kind)}, which Cast makes no {target} of", ("spec",)
                )
        return Columns(
            tuple(retyped(each, KINDS[wanted[each.name]]) if each.name in wanted else each for each in columns)
        )

    def apply(self, rows: Rows) -> Applied:
        """The values in the new types; one that is not what it was makes its row fail."""
        into = rows.columns.behind(self)
        arrays = list(rows.batch.columns)
        failures: list[RowFailure] = []
        for name, target in self.types:
            at = rows.columns.index(name)
            made, bad = cast_values(arrays[at], target, lenient=self.lenient)
            kind = into.arrow.field(at).type
            arrays[at] = made if made.type == kind else made.cast(kind)
            failures += [RowFailure(each.index, each.error_class, each.message, f"$.{name}") for each in bad]
        return settled(rows.with_batch(into, arrays), failures)


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    types: list[tuple[str, str]] = []
    for each in properties.needed_names("spec"):
        name, colon, target = (part.strip() for part in each.rpartition(":"))
        if not colon:
            raise TransformProblem(
                f"'{each}' in spec is a type for a whole value, and a row has columns: write COLUMN:{each}", ("spec",)
            )
        if ":" in name:
            raise TransformProblem(f"'{each}' in spec is no pair such as COLUMN:int32", ("spec",))
        types.append((name, target))
    step = ConnectCast.of(types, lenient=lenient)
    there = tuple(each for each in step.types if each[0] in columns.names)
    if len(there) < len(step.types) and not lenient:
        name = next(name for name, _ in step.types if name not in columns.names)
        hint = "; lenient: true passes over it, as Kafka Connect does"
        raise TransformProblem(no_column(name, columns.names) + hint, ("spec",))
    return [ConnectCast(there, lenient)]


CAST = Known("org.apache.kafka.connect.transforms.Cast$Value", ("spec", "replace.null.with.default"), _steps)
