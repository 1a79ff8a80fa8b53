"""What a merge of manifests keeps of the files' partitions: every value of every type, as it was."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.avro import file as avro_file
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.decoder_fast import CythonBinaryDecoder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.maintenance.measure.manifest_reader import live_files
from jobs.maintenance.measure.partition_measurement import measure_partitions
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.write.column_statistics import ColumnStatistics
from jobs.tables.write.pyiceberg_files import new_data_file

FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
VALUES: list[tuple[PrimitiveType, list[Any]]] = [
    (BooleanType(), [True, False]),
    (IntegerType(), [0, -1, 2**31 - 1, 3 - 2**31]),
    (LongType(), [0, -1, 2**63 - 1, 8 - 2**63]),
    (FloatType(), [*FLOATS, 3.4028234663852886e38, 1.401298464324817e-45]),
    (DoubleType(), [*FLOATS, 0.1, 1.7976931348623157e308, 5e-324, 16777217.0, math.nextafter(1, 2)]),
    (DecimalType(9, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99"), Decimal("-9999999.50")]),
    (DecimalType(38, 0), [Decimal(10**38 - 1), Decimal(51 - 10**38)]),
    (DateType(), [0, -719_162, 2_932_896]),
    (TimeType(), [0, 86_399_999_999]),
    (TimestampType(), [0, -62_135_596_800_000_000, 253_402_300_799_999_999]),
    (TimestamptzType(), [-1, 1_700_000_000_123_456]),
    (StringType(), ["", "é😀", "a/b\x00", "x" * 300]),
    (UUIDType(), [UUID(int=0), UUID(int=2**128 - 1)]),
    (FixedType(3), [b"\x00\x00\x00", b"\xff\x00\x80"]),
    (BinaryType(), [b"", b"\xff" * 40]),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(7),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


def table_of(catalog: SqlCatalog, kind: PrimitiveType) -> Table:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "c", kind))
    fits = [transform for transform in TRANSFORMS if transform.can_transform(kind)]
    fields = [PartitionField(2, 1000 + place, transform, f"p{place}") for place, transform in enumerate(fits)]
    return catalog.create_table(
        "orders.merged",
        schema,
        partition_spec=PartitionSpec(*fields),
        properties={"format-version": "2", "commit.manifest-merge.enabled": "true"},
    )


def merging(table: Table, least: int) -> Table:
    with table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": str(least)})
    return table


def values_of(table: Table, value: Any) -> tuple[Any, ...]:
    kind = table.schema().find_type("c")
    found = [field.transform.transform(kind)(value) for field in table.spec().fields]
    return tuple(each.bytes if isinstance(each, UUID) else each for each in found)


def file_with(table: Table, path: str, *values: Any, bounds: bytes | None = None) -> DataFile:
    statistics = ColumnStatistics(1)
    if bounds is not None:
        statistics.lower_bounds[2] = statistics.upper_bounds[2] = bounds
    return new_data_file(path=path, size=1, partition=Record(*values), spec_id=0, statistics=statistics)


def told(values: Any) -> str:
    """Values with the bits of floats and without the choice between a uuid and its bytes."""
    return repr([each.bytes if isinstance(each, UUID) else each for each in values])


@pytest.fixture
def exactly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyIceberg reads Avro by its decoder in Python, which narrows nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(avro_file, "new_decoder", StreamingBinaryDecoder)
        yield


def entries_of(table: Table) -> dict[str, ManifestEntry]:
    head = table.current_snapshot()
    assert head is not None
    entries = [each for one in head.manifests(table.io) for each in one.fetch_manifest_entry(table.io)]
    return {entry.data_file.file_path: entry for entry in entries}


def manifests_of(table: Table) -> int:
    head = table.current_snapshot()
    return len(head.manifests(table.io)) if head else 0


def append(table: Table, *files: DataFile) -> None:
    commit_once(table, Append(files), summary={}, properties={})


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_merge_keeps_every_partition_value(
    catalog: SqlCatalog, kind: PrimitiveType, values: list[Any], request: pytest.FixtureRequest
) -> None:
    table = merging(table_of(catalog, kind), 2)
    wanted: dict[str, tuple[Any, ...]] = {}
    for number, value in enumerate([None, *values]):
        wanted[f"f{number}"] = values_of(table, value)
        append(table, file_with(table, f"f{number}", *wanted[f"f{number}"]))
    assert manifests_of(table) == 1, "each commit has merged"
    head = table.current_snapshot()
    assert head is not None
    (manifest,) = head.manifests(table.io)
    assert sorted(told(one.partition) for one in live_files(table.io, manifest)) == sorted(map(told, wanted.values()))
    partitions = measure_partitions(table.metadata, table.io, [manifest])
    assert len(partitions) == len(set(map(told, wanted.values()))), "zeros apart, of NaN one"
    request.getfixturevalue("exactly")
    entries = entries_of(table)
    assert {path: told(entry.data_file.partition) for path, entry in entries.items()} == {
        path: told(each) for path, each in wanted.items()
    }
    # The property's commit made no snapshot, so sequence numbers count the appends.
    assert [entries[f"f{number}"].sequence_number for number in range(len(wanted))] == list(range(1, len(wanted) + 1))


@pytest.mark.usefixtures("exactly")
@pytest.mark.parametrize("value", [0.1, 1.797e308, -1.1, 5e-324])
def test_what_an_earlier_merge_narrowed_is_put_right(catalog: SqlCatalog, value: float) -> None:
    table = merging(table_of(catalog, DoubleType()), 2)
    narrow = CythonBinaryDecoder(struct.pack("<d", value)).read_double()
    assert narrow != value
    bits = struct.pack("<d", value)
    append(table, file_with(table, "damaged", narrow, None, bounds=bits))
    # Nothing tells what these were: another value than the narrowed one, and a file without bounds.
    append(table, file_with(table, "other", 7.25, None, bounds=bits), file_with(table, "bare", narrow, None))
    found = {path: entry.data_file.partition[0] for path, entry in entries_of(table).items()}
    assert found == {"damaged": value, "other": 7.25, "bare": narrow}


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0], [-0.0, 1.0], [0.0, -1.0]], ids=str)
@pytest.mark.parametrize("least", [2, 100])
def test_a_manifests_bounds_hold_both_zeros(
    catalog: SqlCatalog, kind: PrimitiveType, zeros: list[float], least: int
) -> None:
    """As Java's readers compare them; one that looks for 0.0 would pass over a manifest that ends at -0.0."""
    table = merging(table_of(catalog, kind), least)
    for number, value in enumerate(zeros):
        append(table, file_with(table, f"f{number}", value, None))
    append(table, *(file_with(table, f"g{number}", value, None) for number, value in enumerate(zeros)))
    head = table.current_snapshot()
    assert head is not None
    layout = "<f" if isinstance(kind, FloatType) else "<d"
    for manifest in head.manifests(table.io):
        low, high = (in_java(struct.unpack(layout, bound)[0]) for bound in bounds_of(manifest))
        held = [in_java(entry.data_file.partition[0]) for entry in manifest.fetch_manifest_entry(table.io)]
        assert low <= min(held)
        assert high >= max(held)


def in_java(value: float) -> tuple[float, float]:
    """A value as `Double.compare` sorts it."""
    return value, math.copysign(1, value)


def bounds_of(manifest: ManifestFile) -> tuple[bytes, bytes]:
    summary = (manifest.partitions or [])[0]
    assert summary.lower_bound is not None and summary.upper_bound is not None
    return summary.lower_bound, summary.upper_bound
