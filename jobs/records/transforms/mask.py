"""Mask: values are hidden by a neutral value, by a replacement, or by a keyed hash that still distinguishes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.base.errors import FrazilError
from jobs.records.formats.columns.value_texts import texts
from jobs.records.formats.interface.problems import BadValue
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.cast import cast_problem, cast_values
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.nested import changed_at, retyped_at
from jobs.records.transforms.path import Path, field_at, selected
from jobs.records.transforms.transform import Applied, Rows, Transform

_BLOCK = 64
"""Bytes that SHA-256 reads at a time."""
_SAMPLE = 1_000
"""Number of values in the sample that shows whether values repeat."""


def keyed_hash(values: pa.Array, key: bytes) -> pa.Array:
    """Return the HMAC-SHA256 (RFC 2104) of each value in hexadecimal digits, in one DataFusion plan; null for null."""
    if _repeats(values):
        encoded = values.dictionary_encode()
        return keyed_hash(encoded.dictionary, key).take(encoded.indices)
    if not len(values):
        return pa.array([], pa.string())
    found = _digests(values, key)
    # The plan reads null as an empty value.
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.string())) if values.null_count else found


def _repeats(values: pa.Array) -> bool:
    """Return whether to hash each value once: in a sample, at most half of the values are different."""
    sample = values[:_SAMPLE]
    return len(values) > 1 and 2 * len(sample.unique()) <= len(sample)


def check_engine() -> None:
    """Check that DataFusion is installed.

    Raises:
        FrazilError: It is not.
    """
    try:
        import datafusion  # noqa: F401
    except ModuleNotFoundError as problem:
        if problem.name != "datafusion":
            raise
        raise FrazilError(
            "The hash of `mask` needs a package that is not installed (datafusion).",
            fix="pip install 'frazil[registry]'",
        ) from None


def _digests(values: pa.Array, key: bytes) -> pa.Array:
    """Return the hash of each value, in digits; null has the hash of no bytes."""
    import datafusion
    from datafusion.functions import concat, encode, sha256

    padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = (datafusion.lit(bytes(byte ^ with_ for byte in padded)) for with_ in (0x36, 0x5C))
    hashed = encode(sha256(concat(outer, sha256(concat(inner, datafusion.col("v"))))), "hex")
    config = datafusion.SessionConfig().with_target_partitions(1).with_batch_size(len(values))
    frame = datafusion.SessionContext(config).from_arrow(pa.RecordBatch.from_arrays([values], ["v"]))
    found = frame.select(hashed.alias("v")).collect()
    return pa.concat_arrays([each.column(0).cast(pa.string()) for each in found])


_ZEROS = (
    *(ice.StringType, ice.BinaryType, ice.BooleanType, ice.IntegerType, ice.LongType, ice.FloatType, ice.DoubleType),
    *(ice.DecimalType, ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestamptzType, ice.ListType, ice.MapType),
)
_HASHED = (ice.StringType, ice.BinaryType, ice.IntegerType, ice.LongType, ice.UUIDType)


class Key(Protocol):
    """A reference to a secret, passed on in its place."""

    def reveal(self) -> str:
        """Return its present value; raises FrazilError if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Mask(Transform):
    """Hide values; null stays null.

    Attributes:
        columns: Paths, with wildcards.
        replacement: Replaces every value, read as the column's type; None without one.
        key: Key of a hash (HMAC-SHA256 of the value's text, in hexadecimal digits): equal values have equal hashes, and
            nobody without the key finds a value by trying. None without a hash.

    Without replacement and key the neutral value of the type is used: 0, an empty text, false, 1970, no elements.
    """

    name: ClassVar[str] = "mask"
    columns: tuple[str, ...]
    replacement: str | None = None
    key: Key | None = None

    def prepare(self) -> None:
        """Check that the key and the hash function are available."""
        if self.key is not None:
            check_engine()
            self.key.reveal()

    @property
    def adds(self) -> frozenset[str]:
        """Return no names; a hash may change a column's type, see `retypes`."""
        return frozenset()

    @property
    def retypes(self) -> bool:
        return self.key is not None

    def output(self, columns: Columns) -> Columns:
        """Return the same columns; hashed ones are texts.

        Raises:
            TransformProblem: Values of a column's type cannot be hidden in this way.
        """
        paths = selected(columns, self.columns)
        _apart(paths)
        for path in paths:
            kind = field_at(columns, path).field_type
            problem, key = self._problem(kind)
            if problem:
                raise TransformProblem(f"the column '{'.'.join(path)}' is {schema_text(kind)}, {problem}", (key,))
        return retyped_at(columns, paths, lambda field: self._kind(field.field_type))

    def apply(self, rows: Rows) -> Applied:
        secret = self.key.reveal().encode() if self.key is not None else b""

        def change(array: pa.Array, field: ice.NestedField) -> tuple[pa.Array, list[BadValue]]:
            kind = field.field_type
            if self.key is not None:
                # For decimals it is the text that earlier releases used, so that pseudonyms stay.
                text = array.cast(pa.string()) if isinstance(kind, ice.DecimalType) else texts(array, kind)
                plain = array if isinstance(kind, ice.BinaryType) else text.cast(pa.binary())
                return keyed_hash(plain, secret), []
            with_ = _zero(kind) if self.replacement is None else _read(self.replacement, kind)[0][0]
            return pc.if_else(array.is_valid(), with_, pa.scalar(None, array.type)), []

        into = rows.columns.behind(self)
        arrays, _ = changed_at(rows, selected(rows.columns, self.columns), change, into)
        return Applied(rows.with_batch(into, arrays))

    def _kind(self, kind: ice.IcebergType) -> ice.IcebergType:
        return kind if self.key is None else ice.StringType()

    def _problem(self, kind: ice.IcebergType) -> tuple[str, str]:
        if self.key is not None:
            return ("" if isinstance(kind, _HASHED) else "of which no hash is made"), "hash"
        if self.replacement is None:
            hint = "which has no neutral value: name its fields, or drop it"
            return ("" if isinstance(kind, _ZEROS) else hint), "columns"
        if cast_problem(ice.StringType(), kind) and not isinstance(kind, ice.StringType):
            return "which a replacement cannot stand for", "replacement"
        bad = _read(self.replacement, kind)[1]
        return (f"and the replacement is none: {bad[0].message}" if bad else ""), "replacement"


def _apart(paths: tuple[Path, ...]) -> None:
    for path in paths:
        if any(other != path and other[: len(path)] == path for other in paths):
            raise TransformProblem(f"'{'.'.join(path)}' is masked, and what is within it as well", ("columns",))


def _read(text: str, kind: ice.IcebergType) -> tuple[pa.Array, list[BadValue]]:
    return cast_values(pa.array([text], pa.string()), ice.StringType(), kind)


def _zero(kind: ice.IcebergType) -> pa.Scalar:
    arrow = rows_arrow_type(kind)
    match kind:
        case ice.StringType() | ice.BinaryType():
            return pa.scalar("" if isinstance(kind, ice.StringType) else b"", arrow)
        case ice.BooleanType():
            return pa.scalar(False)
        case ice.ListType() | ice.MapType():
            return pa.scalar([], arrow)
        case ice.FloatType() | ice.DoubleType():
            return pa.scalar(0.0, arrow)
        case ice.IntegerType() | ice.LongType() | ice.DecimalType():
            return pa.array([0]).cast(arrow)[0] if not isinstance(kind, ice.DecimalType) else _decimal_zero(arrow)
        case _:
            return pa.array([0], pa.int32() if isinstance(kind, ice.DateType) else pa.int64()).cast(arrow)[0]


def _decimal_zero(kind: pa.DataType) -> pa.Scalar:
    return pa.array(["0"]).cast(kind)[0]
