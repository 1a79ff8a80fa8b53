"""What an earlier release left beside and in its tables is read, and would be written back, word for word.

So no file, key, property or column has another name than it had; that a deployment goes on with them, and what is in
it, is for `tests/integration/test_earlier_release.py`.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from jobs.clients.state_store.lease_record import LeaseRecord
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.settings.settings import Settings
from jobs.dead_letters.replay.pending_return import PendingReturn
from jobs.maintenance.measure import maintenance_history
from jobs.streaming.dead_letter_publisher.position import KEY, PositionDocument
from jobs.streaming.driver.context import unknown_fields
from jobs.streaming.supervision.documents import (
    control_request,
    heartbeat,
    keeper_record,
    launches,
)
from jobs.tables.commit.history.lineage import line_of
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.pending_record import Pending
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp, property_key
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA, REPLAY_STATE_FIELDS
from jobs.tables.ledger.ledger_checkpoints import (
    AUDITED_PREFIX,
    FILLED_PREFIX,
    audit_checkpoints_of,
    audit_checkpoints_text,
    fill_checkpoints_of,
    fill_checkpoints_text,
)
from jobs.tables.ledger.ledger_table import LEDGER_SCHEMA, lacks_columns
from tests.integration.deployment_maker import ARCHIVE

DEPLOYMENT = Path(__file__).parents[1] / "integration/earlier_release" / ARCHIVE


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """The deployment's files, by their paths below `.frazil`."""
    with tarfile.open(DEPLOYMENT) as archive:
        found = [(member.name, archive.extractfile(member)) for member in archive if member.isfile()]
        return {name.removeprefix(".frazil/"): content.read() for name, content in found if content is not None}


@pytest.fixture(scope="module")
def tables(files: dict[str, bytes]) -> dict[str, TableMetadata]:
    """The newest metadata of each table."""
    found: dict[str, TableMetadata] = {}
    for path in sorted(path for path in files if path.endswith(".metadata.json")):
        _, namespace, table, *_ = path.split("/")
        found[f"{namespace}.{table}"] = TableMetadataUtil.parse_raw(files[path].decode())
    return found


def columns(schema: Schema) -> list[tuple[Any, ...]]:
    """Catalogs number the fields anew."""
    return [(field.name, type(field.field_type), field.required) for field in schema.fields]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("orders/lease-00000002.json", LeaseRecord),
        ("clicks/connect/lease-00000002.json", LeaseRecord),
        (f"orders/{heartbeat.KEY}", heartbeat.Heartbeat),
        (f"orders/{control_request.KEY}", control_request.ControlRequest),
        (f"orders/{launches.LAUNCH_KEY}", launches.Launch),
        (f"orders/{launches.PROCESS_KEY}", launches.LaunchedProcess),
        (f"orders/{KEY}", PositionDocument),
        (f"orders/{unknown_fields.KEY}", unknown_fields.UnknownFields),
        ("orders/replay/returning-00000001.json", PendingReturn),
    ],
)
def test_small_files(files: dict[str, bytes], path: str, kind: type) -> None:
    content = files[f"state/streams/{path}"]
    now = json.loads(msgspec.json.encode(msgspec.json.decode(content, type=kind)))
    assert kept_of(now, json.loads(content)) == json.loads(content)


def kept_of(now: Any, before: Any) -> Any:
    """A document without the members that it did not have in the earlier release."""
    if isinstance(now, dict) and isinstance(before, dict):
        return {key: kept_of(value, before[key]) for key, value in now.items() if key in before}
    return now


def test_the_keeper_and_the_launched_file(files: dict[str, bytes]) -> None:
    content = json.loads(files[f"state/streams/orders/{keeper_record.KEY}"])
    assert asdict(keeper_record.KeeperRecord(**content)) == content
    assert files[f"state/streams/orders/{launches.SPEC_FILE}"] == files["streams/orders.yaml"]


def test_what_maintenance_did(files: dict[str, bytes], tables: dict[str, TableMetadata], tmp_path: Path) -> None:
    settings, uuid = Settings.embedded(tmp_path), str(tables["shop.refunds"].table_uuid)
    name = f"tables/{uuid}/{maintenance_history.KEY}"
    content = files[f"state/{name}"]
    state_store(settings).put(name, content)
    store = maintenance_history.table_store(settings, uuid)
    maintenance_history.write_history(store, maintenance_history.read_history(store))
    assert json.loads((settings.state / name).read_bytes()) == json.loads(content)


@pytest.mark.parametrize(
    "path", ["orders/pending-00000002", "refunds/replay/pending-00000004", "clicks/connect/pending-00000002"]
)
def test_pending_records(files: dict[str, bytes], tables: dict[str, TableMetadata], path: str) -> None:
    content = files[f"state/streams/{path}.json"]
    record = Pending.decode(content, tables)
    assert json.loads(record.encode(tables)) == json.loads(content)
    assert all(target.files for name, target in record.targets.items() if target.stamp.rows.get(name))


def test_stamps(tables: dict[str, TableMetadata]) -> None:
    stamps = [
        text
        for metadata in tables.values()
        for snapshot in metadata.snapshots
        if snapshot.summary and (text := snapshot.summary.additional_properties.get(SUMMARY_KEY))
    ]
    assert len(stamps) > 20
    for table, stream in (
        ("shop.orders", "orders"),
        ("shop.orders", "orders~replay"),
        ("shop.orders_failed", "orders"),
        ("shop.refunds", "refunds"),
        ("shop.refunds", "refunds~replay"),
        ("web.clicks", "clicks"),
        ("web.clicks", "clicks~connect"),
        ("web.clicks_dead", "clicks~connect"),
    ):
        metadata = tables[table]
        assert history(metadata, stream).newest is not None
        assert not history(metadata, stream).rolled_back
        assert line_of(metadata.properties) is not None
        stamps.append(metadata.properties[property_key(stream)])
    for text in stamps:
        assert json.loads(Stamp.from_json(text).to_json()) == json.loads(text)


def test_tables(tables: dict[str, TableMetadata]) -> None:
    ledger = tables["frazil.ledger"]
    # The ledger's columns of a later version are added when it is filled (`ensure_ledger`).
    later = {"elsewhere", "late_rows"}
    assert columns(ledger.schema()) == [each for each in columns(LEDGER_SCHEMA) if each[0] not in later]
    assert lacks_columns(ledger)
    # A column of a later version is added when the stream opens its tables, or a replay does.
    later = {"row_before", "target"}
    for letters in ("shop.orders_failed", "shop.refunds_dead", "web.clicks_dead"):
        expected = [each for each in columns(DEAD_LETTER_SCHEMA) if each[0] not in later]
        assert columns(tables[letters].schema()) == expected
    assert later <= {each.name for each in REPLAY_STATE_FIELDS}
    filled, audited = (
        fill_checkpoints_of(ledger.properties, "refunds"),
        audit_checkpoints_of(ledger.properties, "refunds"),
    )
    assert json.loads(fill_checkpoints_text(filled)) == json.loads(ledger.properties[f"{FILLED_PREFIX}refunds"])
    assert json.loads(audit_checkpoints_text(audited)) == json.loads(ledger.properties[f"{AUDITED_PREFIX}refunds"])
