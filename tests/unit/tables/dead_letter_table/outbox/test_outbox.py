"""Positions, notes and windows of letters that are to be published; no broker."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.error_handling import DeadLetterTopic
from jobs.streaming.dead_letter_publisher.position import (
    KEY,
    Key,
    OutboxPosition,
    PositionStore,
    count_unpublished,
    letter_chunks,
    next_window,
    refuse_altered,
)
from jobs.streaming.dead_letter_publisher.topic import cluster_of, limits_from
from jobs.tables.dead_letter_table.kafka_record import RecordLimits
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from tests.helpers.memory_store import InMemoryStore
from tests.integration.dead_letters import SEEN

START = OutboxPosition.before_epoch(1)
KEYS: list[Key] = sorted(
    (epoch, batch, topic, partition, offset)
    for epoch in (1, 2, 10)
    for batch in (0, 3, 2**31)
    for topic in ("a", "b.é")
    for partition in (0, 2)
    for offset in (0, 2**40)
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    made = catalog.create_table("n.dead", DEAD_LETTER_SCHEMA)
    schema = made.schema().as_arrow()
    # Several files, none of them in order.
    for part in range(3):
        rows = [row(key) for key in reversed(KEYS[part::3])] + [row(KEYS[part]) | {"stream": "another"}]
        made.append(pa.Table.from_pylist(rows, schema))
    made.append(pa.Table.from_pylist([row(KEYS[0]) | {"epoch": None, "batch_id": None}], schema))
    return made


def row(key: Key) -> dict[str, object]:
    epoch, batch, topic, partition, offset = key
    return {
        "stream": "s",
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "value": b"x",
        "stage": "decode_value",
        "error_class": "wrong_type",
        "epoch": epoch,
        "batch_id": batch,
        "first_seen": SEEN,
    }


def test_behind_each_place_are_the_letters_after_it(table: Table) -> None:
    assert count_unpublished(table, "s", START) == len(KEYS)
    for index in (0, 1, 5, 17, len(KEYS) - 1):
        place = OutboxPosition.through(KEYS[index])
        window = next_window(table, "s", place, most=7)
        assert window.total == len(KEYS) - index - 1
        assert [window.key(i) for i in range(window.keys.num_rows)] == KEYS[index + 1 : index + 8]
    assert next_window(table, "s", OutboxPosition(2, 3), 1).key(0) == next(key for key in KEYS if key > (2, 4))
    assert count_unpublished(table, "s", OutboxPosition.before_epoch(10)) == sum(key[0] == 10 for key in KEYS)
    assert count_unpublished(table, "s", OutboxPosition.before_epoch(11)) == 0


def test_letters_that_a_replay_rewrites_are_not_behind_the_position(table: Table) -> None:
    rows = table.scan().to_arrow()
    state = rows.schema.get_field_index("state")
    replayed = pa.array(["replayed"] * rows.num_rows, rows.schema.field(state).type)
    table.overwrite(rows.set_column(state, rows.schema.field(state), replayed))
    assert count_unpublished(table, "s", OutboxPosition.through(KEYS[-1])) == 0
    assert count_unpublished(table, "s", OutboxPosition.through(KEYS[-2])) == 1


def test_a_table_that_was_altered_is_refused(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("error_class", "reason")
    with pytest.raises(FrazilError, match=r"dead-letter table n\.dead has no column error_class"):
        refuse_altered(table, "n.dead")
    with table.update_schema() as update:
        update.rename_column("reason", "error_class")
    refuse_altered(table, "n.dead")


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_chunks_are_in_order_and_hold_each_letter_once(table: Table, most: int) -> None:
    position, found = START, []
    while (window := next_window(table, "s", position, most=20)).total:
        for last, letters in letter_chunks(table, "s", position, window, most=most):
            assert letters.num_rows <= most
            found += [
                (each["epoch"], each["batch_id"], each["topic"], each["partition"], each["offset"])
                for each in letters.to_pylist()
            ]
            assert found[-1] == last
            position = OutboxPosition.through(last)
    assert found == KEYS


def test_chunks_shrink_when_letters_are_large(table: Table) -> None:
    window = next_window(table, "s", START)
    sizes = [letters.num_rows for _, letters in letter_chunks(table, "s", START, window, most=8, most_bytes=1)]
    assert sizes == [8] + [1] * (len(KEYS) - 8)


@pytest.mark.parametrize(
    "place",
    [
        OutboxPosition(0, 2**32 - 1),
        OutboxPosition(7, 3),
        OutboxPosition(2, 0, ("pay.in", 4, 2**50)),
        OutboxPosition(7, 3, None, "u"),
    ],
)
def test_a_position_as_kafka_keeps_it(place: OutboxPosition) -> None:
    assert 0 <= place.offset < 2**63
    assert OutboxPosition.from_group(place.offset, place.metadata("orders.dead")) == place


def test_of_a_table_that_was_begun_anew_nothing_is_published() -> None:
    place = OutboxPosition(1, 7, ("pay.in", 0, 99))
    # As earlier versions kept it.
    text = msgspec.json.decode(place.metadata("t"))
    del text["table_uuid"]
    known = OutboxPosition.from_group(place.offset, msgspec.json.encode(text).decode()).in_table("a")
    assert known == OutboxPosition(1, 7, ("pay.in", 0, 99), "a")
    assert known.in_table("a") == known
    assert known.in_table("b") == OutboxPosition(0, 2**32 - 1, None, "b")


@pytest.mark.parametrize(
    ("offset", "metadata"),
    [(17, None), (17, ""), (17, "{}"), (17, "[]"), (18, OutboxPosition(0, 17).metadata("t")), (17, '{"v": 2}')],
)
def test_what_somebody_else_committed_is_refused(offset: int, metadata: str | None) -> None:
    with pytest.raises(FrazilError, match=f"offset {offset} with the text .* is no position of dead letters"):
        OutboxPosition.from_group(offset, metadata)


def test_the_note_begins_once_for_each_topic() -> None:
    store = InMemoryStore()

    def notes(topic: str = "t", servers: str = "h:1") -> PositionStore:
        return PositionStore(store, topic, servers, "orders.dead")

    assert notes().begin(OutboxPosition.before_epoch(3)) == OutboxPosition.before_epoch(3)
    assert notes().begin(OutboxPosition.before_epoch(9)) == OutboxPosition.before_epoch(3)
    there = OutboxPosition.through(KEYS[4])
    notes().keep(there)
    assert notes().begin(START) == there
    assert notes(servers="h:2").begin(START) == START
    store.put(KEY, b"{")
    assert notes().begin(there) == there


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        ({}, RecordLimits()),
        (
            {"max.message.bytes": "2000", "message.timestamp.after.max.ms": "3600000"},
            RecordLimits(2000, None, 3_600_000),
        ),
        ({"message.timestamp.before.max.ms": str(2**63 - 1)}, RecordLimits()),
        ({"message.timestamp.difference.max.ms": "5"}, RecordLimits(before_ms=5, after_ms=5)),
        ({"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1"}, RecordLimits()),
    ],
)
def test_what_a_topic_takes(config: dict[str, str | None], limits: RecordLimits) -> None:
    assert limits_from(config) == limits


def test_the_topics_cluster_is_its_own_or_that_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = KafkaSettings(bootstrap_servers="here:9092")
    assert cluster_of(DeadLetterTopic(name="t"), settings) == settings
    security = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": "${env:ELSEWHERE}"}
    topic = DeadLetterTopic.model_validate(
        {"name": "t", "kafka": {"bootstrap_servers": "there:1", "security": security}}
    )
    there = cluster_of(topic, settings)
    assert (there.bootstrap_servers, there.request_timeout) == ("there:1", settings.request_timeout)
    monkeypatch.setenv("ELSEWHERE", "secret")
    assert librdkafka_options(there.security)["sasl.password"] == "secret"
    assert "secret" not in repr(there)
