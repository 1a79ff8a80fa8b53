"""Case of an expectation: rows that it accepts and rows that it does not; and several cases as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.config.contract.contract import Expectation

BEYOND = 2**53 + 1
"""A long that no double holds."""
COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
TYPES: dict[str, pa.DataType] = {
    "i": pa.int64(), "n": pa.int32(), "d": pa.decimal128(12, 2), "e": pa.decimal128(18, 4), "f": pa.float64(),
    "s": pa.string(), "t": pa.string(), "b": pa.bool_(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
    "until": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
    "payer": pa.struct([("iban", pa.string()), ("age", pa.int32())]), "tags": pa.list_(pa.string()),
}  # fmt: skip
NAN = float("nan")


class Case(NamedTuple):
    """An expectation with two sets of rows.

    Attributes:
        type: Type of the expectation.
        arguments: Arguments of the expectation.
        good: Values of columns that it accepts.
        bad: Values of columns that it does not accept.
        rejected: Number of rejected bad rows; None if the expectation is about all rows together.
    """

    type: str
    arguments: dict[str, Any]
    good: dict[str, list[Any]]
    bad: dict[str, list[Any]]
    rejected: int | None = None

    @property
    def expectation(self) -> Expectation:
        return Expectation.model_validate({self.type: self.arguments})


def rows(values: dict[str, list[Any]], types: Mapping[str, pa.DataType] = TYPES) -> pa.Table:
    """Rows with the columns of the values, and coordinates."""
    count = len(next(iter(values.values())))
    columns = {name: pa.array(each, types[name]) for name, each in values.items()}
    where = {
        "_kafka_topic": pa.array(["payments"] * count, pa.string()),
        "_kafka_partition": pa.array([0] * count, pa.int32()),
        "_kafka_offset": pa.array(range(100, 100 + count), pa.int64()),
    }
    return pa.table({**columns, **where})


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)


def decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


def side_by_side(cases: Sequence[tuple[int, Case]], which: str) -> tuple[pa.Table, list[Expectation]]:
    """Rows of several cases with as many rows, in one table: each with columns of its own, which its arguments name."""
    columns: dict[str, list[Any]] = {}
    types: dict[str, pa.DataType] = {}
    found: list[Expectation] = []
    for number, case in cases:
        prefix = f"x{number}_"
        for name, values in getattr(case, which).items():
            columns[prefix + name], types[prefix + name] = values, TYPES[name]
        entry: Any = {case.type: _renamed(case.arguments, prefix), "name": f"case_{number}"}
        found.append(Expectation.model_validate(entry))
    return rows(columns, types), found


def _renamed(arguments: Any, prefix: str) -> dict[str, Any]:
    renamed = dict(arguments)
    for name in ("column", "column_A", "column_B"):
        if name in renamed:
            renamed[name] = prefix + renamed[name]
    for name in ("column_list", "columns"):
        if name in renamed:
            renamed[name] = [prefix + each for each in renamed[name]]
    condition = renamed.get("row_condition")
    if isinstance(condition, str):
        renamed["row_condition"] = condition.replace('col("', f'col("{prefix}')
    elif condition is not None:
        renamed["row_condition"] = {**condition, "column": {"name": prefix + condition["column"]["name"]}}
    return renamed
