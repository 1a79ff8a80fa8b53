"""Which rows of the ledger are asked for, as a condition that the files' statistics can answer."""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, Or


def rows_wanted(
    stream: str, table: str | None, after_sequence: int | None, uuid: str | None = None
) -> BooleanExpression:
    """Rows of a stream; of a table by its name, or by its uuid under any; of commits with a greater sequence number."""
    first = 0 if after_sequence is None else after_sequence + 1
    wanted: BooleanExpression = And(EqualTo("stream", stream), GreaterThanOrEqual("sequence", first))
    if table is None:
        return wanted
    # A table that was renamed has rows under its former name; it keeps its uuid.
    named: BooleanExpression = EqualTo("table_name", table)
    return And(wanted, named if uuid is None else Or(named, EqualTo("table_uuid", uuid)))
