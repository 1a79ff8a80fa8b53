"""Rows in an engine's form: the columns that expectations need, of the rows that match a condition."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from jobs.config.contract.contract_columns import NotEvaluable, SeenColumn, find_column
from jobs.config.contract.row_condition import Combination, Condition, Nullity

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_DECIMAL_DIGITS = 38
ANY = "k"
"""A constant column of every frame, for rows without coordinates."""


class Rows(Protocol):
    """Rows that expectations are evaluated on."""

    schema: pa.Schema
    """Schema with the table's columns."""

    def seen(self, columns: Mapping[str, SeenColumn], also: Mapping[str, str], condition: Condition | None) -> Any:
        """A frame of the engine.

        Args:
            columns: Columns by their name in the frame.
            also: Columns that are copied unchanged, by their name in the frame.
            condition: Condition on the rows; None for all.

        Raises:
            NotEvaluable: The condition compares values that cannot be compared.
        """
        ...


class ArrowRows:
    """Rows of an Arrow table, for pandas."""

    def __init__(self, table: pa.Table) -> None:
        self.schema: pa.Schema = table.schema
        self.table: pa.Table = table

    def seen(
        self, columns: Mapping[str, SeenColumn], also: Mapping[str, str], condition: Condition | None
    ) -> pd.DataFrame:
        import pandas as pd

        table = self.table
        if condition is not None:
            table = table.filter(self._met(condition))
        frame = {name: _as_pandas(_arrow(table, column), column.stored) for name, column in columns.items()}
        for name, own in also.items():
            frame[name] = pd.Series(table.column(own).to_pylist(), dtype=object)
        return pd.DataFrame({**frame, ANY: 0}, index=pd.RangeIndex(table.num_rows))

    def _met(self, condition: Condition) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(condition, Combination):
            met = [self._met(part) for part in condition.parts]
            combined = met[0]
            for each in met[1:]:
                combined = (pc.and_kleene if condition.word == "and" else pc.or_kleene)(combined, each)
            return combined
        column = find_column(self.schema, condition.column)
        if isinstance(condition, Nullity):
            values = _arrow(self.table, column.in_form("presence"))
            return pc.is_null(values) if condition.is_null else pc.is_valid(values)
        seen = column.in_form("exact")
        values = _arrow(self.table, seen)
        if condition.operator in ("IN", "NOT_IN"):
            wanted = [seen.argument(each) for each in condition.value]
            found = pc.is_in(values, value_set=_literals(wanted, values.type))
            answer = found if condition.operator == "IN" else pc.invert(found)
            return pc.if_else(pc.is_valid(values), answer, pa.scalar(None, pa.bool_()))
        compare = {
            "==": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater,
            ">=": pc.greater_equal,
        }[condition.operator]  # fmt: skip
        wanted = seen.argument(condition.value)
        if isinstance(wanted, Decimal):
            # The type has room for the digits of both.
            values, wanted = values.cast(pa.decimal256(76, 38)), pa.scalar(wanted).cast(pa.decimal256(76, 38))
        return compare(values, wanted)


class SparkRows:
    """Rows of a data frame, for Spark."""

    def __init__(self, frame: DataFrame) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.schema: pa.Schema = to_arrow_schema(frame.schema)
        self.frame: DataFrame = frame

    def seen(
        self, columns: Mapping[str, SeenColumn], also: Mapping[str, str], condition: Condition | None
    ) -> DataFrame:
        from pyspark.sql import functions as sql

        frame = self.frame
        if condition is not None:
            frame = frame.filter(self._met(condition))
        wanted = [self._value(column).alias(name) for name, column in columns.items()]
        wanted += [_reference((own,)).alias(name) for name, own in also.items()]
        return frame.select(*wanted, sql.lit(0).alias(ANY))

    def _met(self, condition: Condition) -> SparkColumn:
        if isinstance(condition, Combination):
            met = [self._met(part) for part in condition.parts]
            combined = met[0]
            for each in met[1:]:
                combined = combined & each if condition.word == "and" else combined | each
            return combined
        column = find_column(self.schema, condition.column)
        if isinstance(condition, Nullity):
            value = self._value(column.in_form("presence"))
            return value.isNull() if condition.is_null else value.isNotNull()
        seen = column.in_form("exact")
        value = self._value(seen)
        if condition.operator in ("IN", "NOT_IN"):
            found = value.isin([seen.argument(each) for each in condition.value])
            return found if condition.operator == "IN" else ~found
        wanted = seen.argument(condition.value)
        return {
            "==": value == wanted, "!=": value != wanted, "<": value < wanted, "<=": value <= wanted,
            ">": value > wanted, ">=": value >= wanted,
        }[condition.operator]  # fmt: skip

    def _value(self, seen: SeenColumn) -> SparkColumn:
        from pyspark.sql import functions as sql

        value = _reference(seen.column.parts)
        kind, stored = seen.column.kind, seen.stored
        if seen.form == "presence":
            return sql.when(value.isNotNull(), sql.lit(True))
        if kind == "float":
            value = value.cast("double")
            return sql.when(~sql.isnan(value), value)
        if kind == "date":
            value = sql.unix_date(value)
        elif kind == "timestamp":
            value = _micros(value)
        elif kind == "timestamptz":
            value = sql.unix_micros(value)
        elif kind == "binary":
            value = sql.lower(sql.hex(value))
        if stored == "double":
            return value.cast("double")
        if stored == "decimal" and seen.form != "exact":
            # The type has room for sums. Spark handles decimals that fit a long faster, so it is used only if needed.
            return value.cast(f"decimal({_DECIMAL_DIGITS},{seen.scale})")
        return value.cast("bigint") if stored == "int" else value


def _micros(value: SparkColumn) -> SparkColumn:
    """Microseconds of a time without a zone, as if it were UTC's, whatever the session's zone is."""
    from pyspark.sql import functions as sql

    whole = sql.datediff(value.cast("date"), sql.lit("1970-01-01").cast("date")).cast("bigint") * sql.lit(
        86_400_000_000
    )
    seconds = sql.hour(value).cast("bigint") * 3600 + sql.minute(value) * 60
    within = (sql.extract(sql.lit("SECOND"), value) * sql.lit(Decimal(1_000_000))).cast("bigint")
    return whole + seconds * sql.lit(1_000_000) + within


def _reference(parts: Sequence[str]) -> SparkColumn:
    from pyspark.sql import functions as sql

    return sql.col(".".join(f"`{part.replace('`', '``')}`" for part in parts))


def _arrow(table: pa.Table, seen: SeenColumn) -> pa.Array:
    """Values of a column in the engine's form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, *within = seen.column.parts
    column: Any = table.column(first)
    value: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(value, pa.ChunkedArray):
        value = value.chunk(0) if value.num_chunks else pa.array([], value.type)
    for part in within:
        # Fields of a null struct are null, which struct_field alone does not show.
        value = pc.if_else(pc.is_valid(value), pc.struct_field(value, part), None)
    kind, stored = seen.column.kind, seen.stored
    if seen.form == "presence":
        return pc.if_else(pc.is_valid(value), True, pa.scalar(None, pa.bool_()))
    if kind == "float":
        value = value.cast(pa.float64())
        return pc.if_else(pc.is_nan(value), pa.scalar(None, pa.float64()), value)
    if kind in ("uuid", "binary"):
        return pa.array([_text_of(kind, each) for each in value.to_pylist()], pa.string())
    if kind == "date":
        value = value.cast(pa.date32()).cast(pa.int32())
    elif kind in ("timestamp", "timestamptz"):
        value = value.cast(pa.timestamp("us", value.type.tz), safe=False).cast(pa.int64())
    elif kind == "time":
        value = value.cast(pa.time64("us")).cast(pa.int64())
    if stored == "double":
        return value.cast(pa.float64())
    if stored == "decimal":
        return _decimals(value, seen.scale)
    return value.cast(pa.int64()) if stored == "int" else value.cast(pa.string()) if stored == "string" else value


def _decimals(value: pa.Array, scale: int) -> pa.Array:
    import pyarrow as pa

    try:
        if pa.types.is_integer(value.type):
            # Arrow converts 64 bits to fewer digits only by way of 19.
            value = value.cast(pa.decimal128(19, 0))
        return value.cast(pa.decimal128(_DECIMAL_DIGITS, scale))
    except pa.ArrowInvalid:
        raise NotEvaluable("its decimals have more than 38 digits together") from None


def _text_of(kind: str, value: Any) -> str | None:
    if value is None:
        return None
    if kind == "uuid":
        import uuid

        return str(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value))
    return bytes(value).hex()


def _literals(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Values in a column's type; values that do not fit the type are in no row."""
    import pyarrow as pa

    found = []
    for value in values:
        try:
            found.append(pa.scalar(value).cast(data_type).as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return pa.array(found, data_type)


def _as_pandas(values: pa.Array, stored: str) -> Any:
    import pandas as pd

    if stored == "double":
        return values.to_numpy(zero_copy_only=False)
    if stored == "decimal":
        return pd.Series(values.to_pylist(), dtype=object)
    types = {"int": pd.Int64Dtype(), "string": pd.StringDtype("python"), "boolean": pd.BooleanDtype()}
    if stored == "string":
        return pd.Series(values.to_pandas(), dtype=types[stored])
    return types[stored].__from_arrow__(values)
