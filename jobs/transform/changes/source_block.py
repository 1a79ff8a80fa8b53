"""Source block of Debezium's events: the struct that says where in a database a change stands."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import TransformProblem
from jobs.transform.masks import Mask, mask_of

NUMBERS = ("lsn", "pos", "row", "server_id", "event_serial_no", "txId", "ts_ms", "ts_us")
TEXTS = ("connector", "name", "db", "sequence", "file", "gtid", "change_lsn", "commit_lsn", "lsid")
_WHOLE = r"^[0-9]{1,18}$"


@dataclass(frozen=True, slots=True)
class SourceBlock:
    """The field `source` of some events.

    Attributes:
        values: A struct for each event; null of what is none.
        reads: Which events read a row for a snapshot.
    """

    values: pa.StructArray
    reads: Mask

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self.values)

    def has(self, *names: str) -> bool:
        """Whether there are fields of these names."""
        return all(self.values.type.get_field_index(each) >= 0 for each in names)

    def texts(self, name: str) -> pa.Array:
        """A field as text; null where there is no such field."""
        if not self.has(name):
            return pa.nulls(self.count, pa.string())
        found = pc.struct_field(self.values, name)
        return found if found.type == pa.string() else found.cast(pa.string())

    def numbers(self, name: str) -> pa.Array:
        """A field as whole numbers of 64 bits from 0 on, also of digits in a text; null where it is something else."""
        found = self.signed(name)
        return pc.if_else(pc.less(found, 0), pa.scalar(None, pa.int64()), found)

    def signed(self, name: str) -> pa.Array:
        """The same with numbers below 0."""
        if not self.has(name):
            return pa.nulls(self.count, pa.int64())
        found = pc.struct_field(self.values, name)
        if pa.types.is_string(found.type):
            whole = pc.match_substring_regex(found, _WHOLE)
            return pc.if_else(whole, found, pa.scalar(None, pa.string())).cast(pa.int64())
        return found if found.type == pa.int64() else found.cast(pa.int64())

    def there(self, *names: str) -> Mask:
        """Which events have a value in each of these fields."""
        found = mask_of(self.values.is_valid())
        for each in names:
            values = self.texts(each) if each in TEXTS else self.numbers(each)
            found = found & mask_of(values.is_valid())
        return found

    def joined(self, *parts: pa.Array | str) -> pa.Array:
        """Texts with "/" between them; a part that is null is empty."""
        arrays = [pc.fill_null(each, "") if isinstance(each, pa.Array) else each for each in parts]
        return pc.binary_join_element_wise(*arrays, "/")


def source_problem(source: ice.StructType) -> str | None:
    """Why a struct cannot be the source block of events; None if it can."""
    for each in source.fields:
        kind = each.field_type
        if each.name in TEXTS and not isinstance(kind, ice.StringType):
            return f"source.{each.name} is a text in Debezium's events, and {schema_text(kind)} here"
        if each.name in NUMBERS and not isinstance(kind, _NUMBER_TYPES):
            timed = each.name.startswith("ts_") and isinstance(kind, ice.TimestampType | ice.TimestamptzType)
            if not timed:
                return f"source.{each.name} is a whole number in Debezium's events, and {schema_text(kind)} here"
    return None


def checked_source(source: ice.IcebergType | None) -> ice.StructType:
    """The struct `source` of events.

    Raises:
        TransformProblem: It is none.
    """
    if not isinstance(source, ice.StructType):
        said = "needs 'source', the struct of Debezium's events that says where and when a change happened"
        raise TransformProblem(f"{said}: declare it, such as source struct<connector: string, ts_ms: long, lsn: long>")
    if problem := source_problem(source):
        raise TransformProblem(problem)
    return source


_NUMBER_TYPES = (ice.IntegerType, ice.LongType, ice.StringType)
