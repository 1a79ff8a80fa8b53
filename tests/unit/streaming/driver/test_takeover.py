"""Recovering from a pending record on real tables that somebody has altered since it was written."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePartitionSpecsUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening.takeover import recover
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import TargetRecreatedError
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.targets import pair, spec_with

P = TopicPartition("t", 0)
SINK, DEAD = "orders.payments", "orders.payments_dead"
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("orders")
    for name in (SINK, DEAD):
        made.create_table(name, SCHEMA, properties={"format-version": "2"})
    yield made
    made.close()


def files_for(table: Table) -> tuple[DataFile, ...]:
    rows = pa.table({"id": [1, 2], "day": ["a", "b"]}, schema=table.schema().as_arrow())
    files = tuple(_dataframe_to_data_files(table.metadata, rows, table.io, uuid.uuid4()))
    for file in files:
        file.spec_id = table.spec().spec_id
    return files


def opened(catalog: Catalog, folder: Path, epoch: int) -> OpenStream:
    """The stream as the driver of this epoch has it, both tables claimed."""
    spec: Any = spec_with("s", pair(SINK, DEAD))
    lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
    nothing: Any = SimpleNamespace()
    targets = {name: Target(catalog, name, "s") for name in (SINK, DEAD)}

    def claim(newest: Stamp | None) -> Stamp:
        return newest.claimed(epoch) if newest else Stamp("s", "claim", -1, epoch, "c", {P: 0}, {P: 0})

    for target in targets.values():
        target.claim(epoch, claim)
    given = ("s", "c", lease, targets, "", epoch)
    return OpenStream(*given, spec=spec, settings=nothing, folder=StreamFolder.at(folder), log=nothing)


def note(stream: OpenStream, *names: str) -> None:
    """Write the record of a batch whose files were written for these tables as they are now."""
    rows = dict.fromkeys(names, 2)
    uuids = {name: target.uuid for name, target in stream.targets.items()}
    planned: dict[str, PendingTarget] = {}
    for name in names:
        stamp = Stamp("s", "batch", 0, stream.epoch, "c", {P: 0}, {P: 4}, rows=rows)
        stamp = stamp.anchored(uuids, {}) if name == SINK else stamp
        target = stream.targets[name]
        planned[name] = PendingTarget({P: 0}, stamp, files_for(target.table), target.seen())
    metadata = {name: stream.targets[name].table.metadata for name in names}
    encoded = Pending({P: OffsetRange(0, 4)}, planned).encode(metadata)
    stream.folder.store.put(stream.folder.pending(stream.epoch), encoded)


def partition(catalog: Catalog, name: str) -> None:
    with catalog.load_table(name).update_spec() as update:
        update.add_field("day", IdentityTransform())


def remove_spec(catalog: Catalog, name: str) -> None:
    """Partition the table as it was before, and remove the spec in between, as `clean_expired_metadata` does."""
    with catalog.load_table(name).update_spec() as update:
        update.remove_field("day")
    table = catalog.load_table(name)
    gone = [spec_id for spec_id, spec in table.specs().items() if spec.fields]
    uuid_ = AssertTableUUID(uuid=table.metadata.table_uuid)
    catalog.commit_table(table, (uuid_,), (RemovePartitionSpecsUpdate.model_validate({"spec-ids": gone}),))
    assert [spec.fields for spec in catalog.load_table(name).specs().values()] == [()]


def rows(catalog: Catalog, name: str) -> int:
    return catalog.load_table(name).scan().to_arrow().num_rows


def test_a_record_whose_partition_spec_was_removed_no_longer_fits(
    catalog: SqlCatalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition(catalog, SINK)
    first = opened(catalog, tmp_path / "state", 1)
    note(first, SINK)
    remove_spec(catalog, SINK)
    second = opened(catalog, tmp_path / "state", 2)
    with caplog.at_level(logging.WARNING):
        recover(second, catalog)
    assert f"the files of the pending record no longer fit table {SINK}" in caplog.text
    assert second.folder.pending_records() == [] and rows(catalog, SINK) == 0, "the batch runs again"


@pytest.mark.parametrize("altered", [SINK, DEAD])
def test_what_has_the_batch_already_needs_no_spec(catalog: SqlCatalog, tmp_path: Path, altered: str) -> None:
    partition(catalog, altered)
    first = opened(catalog, tmp_path / "state", 1)
    note(first, SINK, DEAD)
    remove_spec(catalog, altered)
    second = opened(catalog, tmp_path / "state", 2)
    if altered == SINK:
        # The driver had committed it to the table before it died, and somebody has compacted it since.
        stamp = Stamp("s", "batch", 0, 2, "c", {P: 0}, {P: 4}, rows={SINK: 2, DEAD: 2})
        sink = second.targets[SINK]
        batch = {P: OffsetRange(0, 4)}
        sink.land(stamp, files_for(sink.table), seen=sink.seen(), batch=batch, position={P: 0})
    recover(second, catalog)
    assert second.folder.pending_records() == []
    assert (rows(catalog, SINK), rows(catalog, DEAD)) == (2, 2 if altered == SINK else 0)


def test_a_table_that_was_made_anew_with_other_specs_stops_all_the_same(catalog: SqlCatalog, tmp_path: Path) -> None:
    partition(catalog, SINK)
    first = opened(catalog, tmp_path / "state", 1)
    note(first, SINK)
    catalog.drop_table(SINK)
    catalog.create_table(SINK, SCHEMA, properties={"format-version": "2"})
    second = opened(catalog, tmp_path / "state", 2)
    with pytest.raises(TargetRecreatedError, match="was dropped and created again"):
        recover(second, catalog)
    assert len(second.folder.pending_records()) == 1


@pytest.mark.parametrize("altered", [False, True])
def test_columns_that_were_added_since_do_no_harm(catalog: SqlCatalog, tmp_path: Path, altered: bool) -> None:
    note(opened(catalog, tmp_path / "state", 1), SINK)
    if altered:
        with catalog.load_table(SINK).update_schema() as update:
            update.add_column("new", StringType())
    recover(opened(catalog, tmp_path / "state", 2), catalog)
    assert rows(catalog, SINK) == 2
