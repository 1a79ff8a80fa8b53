"""Metrics of Great Expectations that give pandas and Spark the same meaning, where they differ.

Importing this module registers them in place of its own, for this process.

- A row in which one of two columns has no value is not as expected, unless ``ignore_row_if`` leaves it out; with
  ``or_equal`` two missing values are equal.
- A sum over columns of which one has no value is not the total.
- A sum, a least and a greatest value of decimals is exact.
- A quantile is a value of some row: the least that this share of the values does not exceed.
- Text that is no JSON does not match a JSON Schema, instead of being an error.
"""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from functools import reduce
from operator import add
from typing import Any

from great_expectations.compatibility.pyspark import functions as sql
from great_expectations.execution_engine import PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.metrics.column_aggregate_metric_provider import (
    column_aggregate_partial,
    column_aggregate_value,
)
from great_expectations.expectations.metrics.column_aggregate_metrics.column_max import ColumnMax
from great_expectations.expectations.metrics.column_aggregate_metrics.column_min import ColumnMin
from great_expectations.expectations.metrics.column_aggregate_metrics.column_quantile_values import ColumnQuantileValues
from great_expectations.expectations.metrics.column_aggregate_metrics.column_sum import ColumnSum
from great_expectations.expectations.metrics.column_map_metrics.column_values_match_json_schema import (
    ColumnValuesMatchJsonSchema,
)
from great_expectations.expectations.metrics.column_pair_map_metrics.column_pair_values_equal import (
    ColumnPairValuesEqual,
)
from great_expectations.expectations.metrics.column_pair_map_metrics.column_pair_values_greater import (
    ColumnPairValuesAGreaterThanB,
)
from great_expectations.expectations.metrics.map_metric_provider import (
    column_condition_partial,
    column_pair_condition_partial,
    multicolumn_condition_partial,
)
from great_expectations.expectations.metrics.multicolumn_map_metrics.multicolumn_sum_equal import MulticolumnSumEqual
from great_expectations.expectations.metrics.multicolumn_map_metrics.multicolumn_values_equal import (
    MulticolumnValuesEqual,
)

DECIMAL = "\0decimal "
# By default Python rounds sums of decimals to 28 digits.
_DIGITS = 100


class PairGreater(ColumnPairValuesAGreaterThanB):
    """Whether the first of two columns is greater."""

    @column_pair_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_A: Any, column_B: Any, **kwargs: Any) -> Any:  # noqa: N803, N805
        equal = bool(kwargs.get("or_equal"))
        return _where_whole(
            [column_A, column_B], lambda a, b: (a >= b) if equal else (a > b), both_missing=equal
        )  # fmt: skip

    @column_pair_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column_A: Any, column_B: Any, **kwargs: Any) -> Any:  # noqa: N803, N805
        found = column_A > column_B
        if kwargs.get("or_equal"):
            found = (column_A >= column_B) | column_A.eqNullSafe(column_B)
        return sql.coalesce(found, sql.lit(False))


class PairEqual(ColumnPairValuesEqual):
    """Whether two columns have the same value, or none."""

    @column_pair_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_A: Any, column_B: Any, **_: Any) -> Any:  # noqa: N803, N805
        return _where_whole([column_A, column_B], lambda a, b: a == b, both_missing=True)


class ValuesEqual(MulticolumnValuesEqual):
    """Whether columns of a row have the same value, or none."""

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_list: Any, **_: Any) -> Any:  # noqa: N805
        columns = [column_list.iloc[:, number] for number in range(column_list.shape[1])]
        return _where_whole(columns, _all_same, both_missing=True)


class SumEqual(MulticolumnSumEqual):
    """Whether columns of a row add up to a total."""

    @multicolumn_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column_list: Any, **kwargs: Any) -> Any:  # noqa: N805
        columns = [column_list.iloc[:, number] for number in range(column_list.shape[1])]
        with localcontext(prec=_DIGITS):
            return _where_whole(columns, lambda *each: reduce(add, each) == kwargs["sum_total"], both_missing=False)

    @multicolumn_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column_list: Any, **kwargs: Any) -> Any:  # noqa: N805
        total = reduce(add, [sql.col(name) for name in column_list.columns])
        return sql.coalesce(total == sql.lit(kwargs["sum_total"]), sql.lit(False))


class Sum(ColumnSum):
    """The sum of a column."""

    @column_aggregate_value(engine=PandasExecutionEngine)
    def _pandas(cls, column: Any, **_: Any) -> Any:  # noqa: N805
        values = column.dropna()
        with localcontext(prec=_DIGITS):
            return values.sum() if len(values) else None

    @column_aggregate_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column: Any, _table: Any = None, _column_name: Any = None, **_: Any) -> Any:  # noqa: N805
        return _as_it_is(sql.sum(column), _table, _column_name)


class Max(ColumnMax):
    """The greatest value of a column."""

    @column_aggregate_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column: Any, **kwargs: Any) -> Any:  # noqa: N805
        return _as_it_is(sql.max(column), kwargs["_table"], kwargs["_column_name"])


class Min(ColumnMin):
    """The least value of a column."""

    @column_aggregate_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column: Any, **kwargs: Any) -> Any:  # noqa: N805
        return _as_it_is(sql.min(column), kwargs["_table"], kwargs["_column_name"])


class QuantileValues(ColumnQuantileValues):
    """Quantiles of a column."""

    @column_aggregate_value(engine=PandasExecutionEngine)
    def _pandas(cls, column: Any, quantiles: list[float], allow_relative_error: Any, **_: Any) -> Any:  # noqa: N805
        import numpy

        values = column.dropna().to_numpy()
        if not len(values):
            return [None for _ in quantiles]
        return [numpy.quantile(values, each, method="inverted_cdf") for each in quantiles]


class JsonSchemaMatch(ColumnValuesMatchJsonSchema):
    """Whether a text is JSON that a JSON Schema allows."""

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column: Any, json_schema: dict[str, Any], **_: Any) -> Any:  # noqa: N805
        return column.map(_fits(json_schema))

    @column_condition_partial(engine=SparkDFExecutionEngine)
    def _spark(cls, column: Any, json_schema: dict[str, Any], **_: Any) -> Any:  # noqa: N805
        return sql.udf(_fits(json_schema), "boolean")(column)


def _as_it_is(value: Any, frame: Any, name: str) -> Any:
    """A decimal as text, so that the engine does not convert it to a double; see `exact_value`."""
    from pyspark.sql.types import DecimalType

    if not isinstance(frame.schema[name].dataType, DecimalType):
        return value
    return sql.concat(sql.lit(DECIMAL), value.cast("string"))


def exact_value(value: Any) -> Any:
    """A value from an engine, with decimals restored."""
    return Decimal(value.removeprefix(DECIMAL)) if isinstance(value, str) and value.startswith(DECIMAL) else value


def _where_whole(columns: list[Any], accepts: Any, *, both_missing: bool) -> Any:
    """Result of `accepts` for rows with every value, of `both_missing` for rows with none, and false for others."""
    import numpy
    import pandas

    present = numpy.array([column.notna().to_numpy(dtype=bool) for column in columns])
    whole: Any = present.all(axis=0)
    found: Any = ~present.any(axis=0) if both_missing else numpy.zeros_like(whole)
    if whole.any():
        found[whole] = numpy.asarray(accepts(*(column[whole] for column in columns)), dtype=bool)
    return pandas.Series(found, index=columns[0].index)


def _all_same(first: Any, *others: Any) -> Any:
    import numpy

    return numpy.all([numpy.asarray(first == other, dtype=bool) for other in others], axis=0)


def _fits(json_schema: dict[str, Any]) -> Any:
    def fits(text: str | None) -> bool:
        import jsonschema

        if text is None:
            return False
        try:
            jsonschema.validate(instance=json.loads(text), schema=json_schema)
        except (ValueError, jsonschema.ValidationError):
            return False
        return True

    return fits
