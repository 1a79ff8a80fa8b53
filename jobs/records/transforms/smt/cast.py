"""Cast of Kafka Connect: columns in Connect's types, and the values that its class changes silently."""

from __future__ import annotations

import base64
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import (
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_TYPE,
    BadValue,
    shown,
)
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    no_column,
    retyped,
)
from jobs.records.transforms.masks import mask_of
from jobs.records.transforms.smt.java import (
    WHOLE,
    decimal_texts,
    float_texts,
    is_infinite_word,
    narrowed,
    parsed_double,
    truncated,
)
from jobs.records.transforms.smt.known import Known, Properties
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
KINDS: dict[str, ice.IcebergType] = {
    **dict.fromkeys(("int8", "int16", "int32"), ice.IntegerType()),
    "int64": ice.LongType(),
    "float32": ice.FloatType(),
    "float64": ice.DoubleType(),
    "boolean": ice.BooleanType(),
    "string": ice.StringType(),
}
"""Connect's types, with frazil's column type for each."""
_ARROW = {"int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "boolean": pa.bool_()}
_DAY_MS = 86_400_000
Made = tuple[pa.Array, list[BadValue]]


def cast_values(array: pa.Array, target: str, *, lenient: bool) -> Made:
    """Cast values to another type.

    Args:
        array: Whole numbers, floats, decimals, booleans, texts, bytes (for `string` only), dates or times.
        target: A key of `KINDS`.
        lenient: Whether a value that Connect changes is changed; otherwise it is refused.

    Returns:
        The values, arbitrary where one is refused, and the refused ones.
    """
    kind = array.type
    if pa.types.is_string(kind):
        return _of_text(array, target, lenient=lenient)
    if target == "string":
        return _text(array, lenient=lenient)
    bad: list[BadValue] = []
    if pa.types.is_temporal(kind):
        array, bad = _base(array, lenient=lenient)
    made, lossy, error = (_of_decimal if pa.types.is_decimal(kind) else _of_number)(array, target)
    judged = [] if lenient else [_bad(array, int(index), target, error) for index in np.flatnonzero(lossy)]
    known = {each.index for each in bad}
    return made, [*bad, *(each for each in judged if each.index not in known)]


def _of_number(array: pa.Array, target: str) -> tuple[pa.Array, np.ndarray, str]:
    """Return the numbers in another type, a mask of the changed ones, and their error class."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    floating = pa.types.is_floating(array.type)
    null = array.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    error = OUT_OF_RANGE
    with np.errstate(over="ignore", invalid="ignore"):
        if target == "boolean":
            made = (truncated(numbers.astype(np.float64), 64) if floating else numbers) != 0
            lossy = (numbers != 0) & (numbers != 1)
        elif target in BITS and floating:
            made = truncated(numbers.astype(np.float64), BITS[target])
            # 2^63 - 1 is no double: a number cut off to it would come back as 2^63.
            lossy = (made.astype(np.float64) != numbers) | (numbers >= 2.0**63)
            error = PRECISION_LOSS
        elif target in BITS:
            made = narrowed(numbers.astype(np.int64), BITS[target])
            lossy = made != numbers
        else:
            made = numbers.astype(np.float32 if target == "float32" else np.float64)
            error = PRECISION_LOSS
            if floating:
                lossy = (made.astype(np.float64) != numbers) & ~np.isnan(numbers)
            else:
                back = made.astype(np.float64)
                inside = (back >= -(2.0**63)) & (back < 2.0**63)
                lossy = ~inside | (np.where(inside, back, 0).astype(np.int64) != numbers)
    if target in BITS:
        made = made.astype(np.int64 if target == "int64" else np.int32)
    return pa.array(made, mask=null, from_pandas=False), lossy & ~null, error


def _of_decimal(array: pa.Array, target: str) -> tuple[pa.Array, np.ndarray, str]:
    """Cast decimals one by one, as that is rare. The result is the nearest float."""
    made: list[object] = []
    lossy = np.zeros(len(array), dtype=bool)
    for index, each in enumerate(array.to_pylist()):
        if each is None:
            made.append(None)
        elif target in ("float32", "float64"):
            number = float(np.float32(float(each))) if target == "float32" else float(each)
            made.append(number)
            lossy[index] = not np.isfinite(number)
        else:
            whole, bits = int(each), BITS.get(target, 64)
            wrapped = (whole + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
            made.append(wrapped != 0 if target == "boolean" else wrapped)
            lossy[index] = each not in (0, 1) if target == "boolean" else wrapped != each
    return pa.array(made, _ARROW.get(target, pa.int32())), lossy, PRECISION_LOSS


def _of_text(array: pa.Array, target: str, *, lenient: bool) -> Made:
    if target == "string":
        return array, []
    if target in BITS:
        return _whole_of_text(array, target)
    if target != "boolean":
        return _float_of_text(array, target, lenient=lenient)
    lower = pc.ascii_lower(array)
    found = pc.equal(lower, "true")
    odd = [] if lenient else np.flatnonzero(mask_of(pc.invert(pc.or_(found, pc.equal(lower, "false")))))
    return found, [_bad(array, int(index), target, WRONG_TYPE) for index in odd]


def _whole_of_text(array: pa.Array, target: str) -> Made:
    fits = pc.match_substring_regex(array, WHOLE)
    plain = pc.utf8_ltrim(array, "+")
    # Numbers of up to 18 digits are read together; others are too large, or have leading zeros.
    short = pc.less_equal(pc.utf8_length(plain), 18)
    numbers = pc.if_else(pc.and_(fits, short), plain, pa.scalar(None, pa.string())).cast(pa.int64())
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).copy()
    limit = 2 ** (BITS[target] - 1)
    wrong = mask_of(pc.invert(fits)).copy()
    for index in np.flatnonzero(mask_of(pc.and_(fits, pc.invert(short)))):
        number = int(array[int(index)].as_py())
        wrong[index] = not -limit <= number < limit
        values[index] = 0 if wrong[index] else number
    wrong |= (values < -limit) | (values > limit - 1)
    null = array.is_null().to_numpy(zero_copy_only=False) | wrong
    found = pa.array(np.where(null, 0, values).astype(np.int64 if target == "int64" else np.int32), mask=null)
    return found, [_bad(array, int(index), target, WRONG_TYPE) for index in np.flatnonzero(wrong)]


def _float_of_text(array: pa.Array, target: str, *, lenient: bool) -> Made:
    """Read floats; each distinct text is read once."""
    encoded = pc.dictionary_encode(array)
    texts: list[str] = encoded.dictionary.to_pylist()
    parsed = [parsed_double(each) for each in texts]
    with np.errstate(over="ignore"):
        made = np.array([0.0 if each is None else each for each in parsed], np.float64)
        made = made.astype(np.float32) if target == "float32" else made
    found = pa.array(made, _ARROW[target], from_pandas=False).take(encoded.indices)
    wrong = {number for number, each in enumerate(parsed) if each is None}
    far: set[int] = set()
    if not lenient:
        far = {int(each) for each in np.flatnonzero(np.isinf(made)) if not is_infinite_word(texts[each])}
    if not wrong and not far:
        return found, []
    which = encoded.indices.to_pylist()
    return found, [
        _bad(array, index, target, WRONG_TYPE if each in wrong else OUT_OF_RANGE)
        for index, each in enumerate(which)
        if each in wrong or each in far
    ]


def _text(array: pa.Array, *, lenient: bool) -> Made:
    kind = array.type
    if pa.types.is_floating(kind):
        return float_texts(array), []
    if pa.types.is_decimal(kind):
        return decimal_texts(array), []
    if pa.types.is_binary(kind):
        encoded = [None if each is None else base64.b64encode(each).decode() for each in array.to_pylist()]
        return pa.array(encoded, pa.string()), []
    if pa.types.is_temporal(kind):
        return _time_text(array, lenient=lenient)
    return array.cast(pa.string()), []


def _time_text(array: pa.Array, *, lenient: bool) -> Made:
    """Return times as texts; Connect writes only the time before 1970-01-02, and only the date at midnight."""
    base, bad = _base(array, lenient=lenient)
    ms = base.cast(pa.int64())
    if pa.types.is_date(array.type):
        ms = pc.multiply(ms, _DAY_MS)
    instants = ms.cast(pa.timestamp("ms"))
    early = pc.less(ms, _DAY_MS)
    midnight = pc.equal(instants, pc.floor_temporal(instants, unit="day"))
    found = pc.strftime(instants, format="%Y-%m-%dT%H:%M:%SZ")
    found = pc.if_else(midnight, pc.strftime(instants, format="%Y-%m-%d"), found)
    found = pc.if_else(early, pc.strftime(instants, format="%H:%M:%SZ"), found)
    if pa.types.is_time(array.type) or lenient:
        return found, bad
    known = {each.index for each in bad}
    said = "needs a day from 1970-01-02 on, for Kafka Connect writes no date of one before, found"
    lost = [int(index) for index in np.flatnonzero(mask_of(early)) if int(index) not in known]
    return found, [*bad, *(BadValue(each, PRECISION_LOSS, f"{said} {array[each]}") for each in lost)]


def _base(array: pa.Array, *, lenient: bool) -> Made:
    """Return dates as days, times and timestamps as milliseconds; finer parts are refused, or cut off if lenient."""
    if pa.types.is_date(array.type):
        return array.cast(pa.int32()), []
    micros = array.cast(pa.int64())
    ms = pc.divide(micros, 1_000)
    rest = pc.subtract(micros, pc.multiply(ms, 1_000))
    ms = pc.subtract(ms, pc.less(rest, 0).cast(pa.int64()))
    fine = [] if lenient else np.flatnonzero(mask_of(pc.not_equal(rest, 0)))
    return ms, [_bad(array, int(each), "whole milliseconds", PRECISION_LOSS) for each in fine]


def _bad(array: pa.Array, index: int, target: str, error: str) -> BadValue:
    value = array[index].as_py()
    told = f"the text {shown(value)}" if isinstance(value, str) else str(value)
    return BadValue(index, error, f"needs {target}, found {told}")


_CAST = (
    *(ice.IntegerType, ice.LongType, ice.FloatType, ice.DoubleType, ice.DecimalType, ice.BooleanType, ice.StringType),
    *(ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestamptzType),
)


@dataclass(frozen=True, slots=True)
class ConnectCast(Transform):
    """Change columns to other types, with Connect's rules.

    Attributes:
        types: Columns at the top, each with a type of Connect.
        lenient: Whether a value that does not fit is changed as Connect changes it.
    """

    name: ClassVar[str] = "cast"
    types: tuple[tuple[str, str], ...]
    lenient: bool

    @classmethod
    def of(cls, types: Sequence[tuple[str, str]], *, lenient: bool) -> ConnectCast:
        """Return the cast.

        Args:
            types: Columns, each with the name of a type in whatever case.
            lenient: As for the step.

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
        """Cast the values; a row fails if its value would change."""
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
