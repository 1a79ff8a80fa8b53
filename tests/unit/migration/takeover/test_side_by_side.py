"""A copy of a stream on a branch of the sink's table first; then the stream starts on main where the sink ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pyiceberg.table.refs import MAIN_BRANCH

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog, LogEnds
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.sink_protocol.sink_floor import floor_text, sink_floor
from jobs.migration.takeover.sink import sink_of
from jobs.streaming.driver.opening.opening import ensure_tables, opened
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition

P0 = TopicPartition("payments", 0)
SINK = sink_of("orders", "apache", group=None, control_topic="control")


class Log:
    """A topic of a hundred records, and where a stream without stamps starts in it."""

    def __init__(self, start: int) -> None:
        self._start: int = start

    def state(self, source: object) -> LogState:
        return LogState({"payments": "Bc0aaaaaaaaaaaaaaaaaaQ"}, {P0: 0}, {P0: 100}, {P0: 100}, {P0: 0}, 1)

    def first_start(self, source: object, log: object) -> Positions:
        return {P0: self._start}

    def ends(self, partitions: Any) -> LogEnds:
        return LogEnds({P0: 100}, {P0: 100}, {P0: 0})

    def departures(self, marks: object) -> dict[TopicPartition, int]:
        return {}

    def identities(self, topics: Any) -> dict[str, str]:
        return dict.fromkeys(topics, "Bc0aaaaaaaaaaaaaaaaaaQ")


def spec_of(stream: str, **table: str) -> StreamSpec:
    document: dict[str, Any] = {
        "stream": stream,
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id long not null"},
        "table": {"name": "lake.payments", **table},
        "errors": {"dead_letters": {"table": f"lake.{stream}_dead"}},
    }
    return StreamSpec.model_validate(document)


def test_a_copy_on_a_branch_is_not_in_the_way(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    catalog = connect_catalog(settings)
    trial, real = spec_of("payments_trial", branch="trial"), spec_of("payments")
    ensure_tables(real, catalog)
    table = catalog.load_table("lake.payments")
    with table.transaction() as change, change.update_snapshot({SINK.floor_key: floor_text({0: 7})}).fast_append():
        pass
    head = table.metadata.current_snapshot_id
    with opened(trial, settings, catalog, cast(KafkaLog, Log(0))) as stream:
        assert stream.begin.offsets == {P0: 0}
    metadata = catalog.load_table("lake.payments").metadata
    assert metadata.current_snapshot_id == head, "readers of the table see nothing of it"
    with opened(real, settings, catalog, cast(KafkaLog, Log(40))) as stream:
        assert stream.begin.offsets == {P0: 40}
    catalog.load_table("lake.payments").manage_snapshots().remove_branch("trial").commit()
    now = catalog.load_table("lake.payments")
    assert [*now.metadata.refs] == [MAIN_BRANCH]
    assert sink_floor(now.metadata, SINK.floor_key).offsets == {0: 7}
    with opened(real, settings, catalog, cast(KafkaLog, Log(0))) as stream:
        assert stream.begin.offsets == {P0: 40}
