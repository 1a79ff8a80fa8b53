"""Resetting offsets where nothing runs: what is asked for, whether it may be done, and how it is told."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.event_time import EventTime
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import DEAD_LETTER_COORDINATES
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.operator.reset import existing_targets, reset_refusal
from jobs.streaming.operator.reset_plan import describe_reset
from jobs.streaming.operator.reset_request import explicit_offsets, reset_request
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import State
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.reset import ResetMove, ResetRefusedError
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from jobs.tables.ledger.row_counter import rows_in_ranges
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from orchestration.cli.common.recorded_runs import RunRecorder
from orchestration.cli.main import main
from orchestration.cli.streams import reset_offsets
from orchestration.jobs.reset import (
    ResetConfig,
    perform_reset,
    reset_facts,
    reset_job_of,
    reset_offsets_job,
    reset_run_config,
    reset_sentences,
    reset_tags,
)
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

P0, P1, Q0 = TopicPartition("t.v1", 0), TopicPartition("t.v1", 1), TopicPartition("u", 0)
LOG = LogState({"t.v1": "a", "u": "b"}, {P0: 1, P1: 2, Q0: 3}, {P0: 10, P1: 20, Q0: 30})


class Calendar:
    """A log with one record per second since 1970."""

    def at_time(self, partitions: list[TopicPartition], millis: int) -> Positions:
        return {partition: min(LOG.latest[partition], millis // 1000) for partition in partitions}


@pytest.mark.parametrize(
    ("to", "only", "offsets"),
    [
        ("earliest", (), {P0: 1, P1: 2, Q0: 3}),
        ("latest", ("t.v1",), {P0: 10, P1: 20}),
        ("latest", ("t.v1:1", "u"), {P1: 20, Q0: 30}),
        ("1970-01-01T00:00:15Z", (), {P0: 10, P1: 15, Q0: 15}),
        ("1970-01-01T01:00:15+01:00", ("u:0",), {Q0: 15}),
        ("t.v1:0=7, u:0=4", (), {P0: 7, Q0: 4}),
    ],
)
def test_what_is_asked_for(to: str, only: tuple[str, ...], offsets: dict[TopicPartition, int]) -> None:
    assert reset_request(to, only).offsets("s", LOG, Calendar()) == offsets


@pytest.mark.parametrize(
    ("to", "only", "said"),
    [
        ("beginning", (), "'beginning' names no position"),
        ("2026-01-31T08:00:00", (), "does not say its zone"),
        ("t.v1:0=7,t.v1:0=8", (), "is there twice"),
        ("t.v1=7", (), "names no offset"),
        ("t.v1:0=7", ("u",), "name their topics themselves"),
        ("latest", ("a b",), "no topic and no partition"),
        ("latest", ("other",), "reads no topic other"),
        ("latest", ("t.v1:2",), "reads no partition t.v1:2"),
    ],
)
def test_what_means_nothing_is_told_with_what_would(to: str, only: tuple[str, ...], said: str) -> None:
    with pytest.raises(ResetRefusedError, match=said) as refused:
        reset_request(to, only).offsets("s", LOG, Calendar())
    assert refused.value.fix


def test_offsets_are_written_as_they_are_read() -> None:
    offsets = {P1: 2, P0: 7, Q0: 4}
    assert explicit_offsets(offsets) == "t.v1:0=7,t.v1:1=2,u:0=4"
    assert reset_request(explicit_offsets(offsets)).target == offsets


@pytest.fixture
def folder(settings: Settings) -> StreamFolder:
    made = stream_folder(settings, "payments")
    made.root.mkdir(parents=True)
    return made


def beat(folder: StreamFolder, state: State) -> None:
    HeartbeatThread(folder.store, "payments", "g", 1, folder.root).change(state=state)


def test_a_stream_that_runs_or_may_start_is_not_reset(
    spec: StreamSpec, settings: Settings, folder: StreamFolder
) -> None:
    def said() -> tuple[str, str | None]:
        problem = reset_refusal(spec, settings)
        return (problem.message, problem.fix) if problem else ("", None)

    stop = "frazil stop payments --reason 'reset offsets'"
    assert "is wanted running" in said()[0] and said()[1] == stop
    for wish in ("paused", "stopped"):
        write_control(folder.store, ControlRequest(mode=wish))
        assert said() == ("", None)
    beat(folder, "paused")
    assert f"its driver, process {os.getpid()}, is paused" in said()[0] and said()[1] == stop
    beat(folder, "stopped")
    assert said() == ("", None)
    lease = Lease(folder.store, "payments", 30.0)
    lease.acquire(above=0)
    try:
        assert f"is run by process {os.getpid()}" in said()[0] and said()[1] == stop
    finally:
        lease.release()
    assert said() == ("", None)


def test_a_stream_that_is_drained_on_request_needs_no_wish(
    spec: StreamSpec, settings: Settings, folder: StreamFolder
) -> None:
    drained = spec.model_copy(update={"trigger": "available_now"})
    assert reset_refusal(drained, settings) is None
    lease = Lease(folder.store, "payments", 30.0)
    lease.acquire(above=0)
    try:
        problem = reset_refusal(drained, settings)
        assert problem is not None and "wait for process" in (problem.fix or "")
    finally:
        lease.release()


def tables(catalog: Catalog, spec: StreamSpec) -> dict[str, Target]:
    """The stream's tables: rows and dead letters of partition 0 up to offset 50, every tenth of them dead."""
    none = UNPARTITIONED_PARTITION_SPEC
    sink = ensure_table(catalog, spec.table.name, spec.table_schema, none, create_table_properties({}))
    dead = ensure_table(catalog, spec.dead_letter_table, DEAD_LETTER_SCHEMA, none, create_table_properties({}))
    stamp = Stamp("payments", "claim", -1, 1, "c", {P0: 0}, {P0: 0}, topics={"t.v1": "a"}, valid_through_ms=1000)
    targets = {name: Target(catalog, name, "payments") for name in (spec.table.name, spec.dead_letter_table)}
    for target in targets.values():
        target.claim(1, lambda newest: stamp)
    now = datetime.now(UTC)
    good, bad = [n for n in range(50) if n % 10], [n for n in range(50) if not n % 10]
    rows = [
        {
            "id": "a",
            "amount": Decimal(1),
            "created_at": now,
            "_kafka_topic": "t.v1",
            "_kafka_partition": 0,
            "_kafka_offset": n,
        }
        for n in good
    ]
    sink.refresh().append(pa.Table.from_pylist(rows, schema=sink.schema().as_arrow()))
    letters = [
        {
            "stream": stream,
            "topic": "t.v1",
            "partition": 0,
            "offset": n,
            "stage": "s",
            "error_class": "e",
            "first_seen": now,
        }
        for n in bad
        for stream in ("payments", "others")
    ]
    dead.refresh().append(pa.Table.from_pylist(letters, schema=dead.schema().as_arrow()))
    for target in targets.values():
        target.claim(2, lambda newest: Stamp("payments", "batch", 1, 2, "c", {P0: 0}, {P0: 50}, valid_through_ms=2000))
    return targets


def test_rows_of_ranges_are_counted_within_bounds(settings: Settings, spec: StreamSpec) -> None:
    ranges = {P0: OffsetRange(15, 35), P1: OffsetRange(0, 50), Q0: OffsetRange(4, 4)}
    with connect_catalog(settings) as catalog:
        sink, dead = (target.table for target in tables(catalog, spec).values())
        told: list[tuple[int, int]] = []
        counted = rows_in_ranges(
            sink, KAFKA_COLUMNS.coordinates, ranges, on_progress=lambda name, *far: told.append(far)
        )
        assert counted.rows == {P0: 18, P1: 0}
        assert told[-1] == (45, 45) or told[-1][0] <= told[-1][1]
        letters = rows_in_ranges(dead, DEAD_LETTER_COORDINATES, ranges, stream="payments")
        assert letters.rows == {P0: 2, P1: 0}, "another stream's dead letters are not this one's"
        assert rows_in_ranges(sink, KAFKA_COLUMNS.coordinates, ranges, max_rows=44).why_not.startswith(
            "it would read 45 rows"
        )
        assert (
            "was not read within 0 s" in rows_in_ranges(sink, KAFKA_COLUMNS.coordinates, ranges, max_seconds=0).why_not
        )
        assert "has no column topic" in rows_in_ranges(sink, DEAD_LETTER_COORDINATES, ranges).why_not


def test_a_plan_says_what_lands_twice_and_how_it_does_not(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        targets = tables(catalog, spec)
        newest = targets[spec.table.name].newest
        older = [Stamp("payments", "claim", 1, 1, "c", {P0: 0}, {P0: 0}, valid_through_ms=1000)]
        made = (ResetMove(P0, 50, 30, OffsetRange(0, 60)), ResetMove(P1, 5, 9, OffsetRange(7, 9)))
        request = reset_request("t.v1:0=30,t.v1:1=9")
        plan = describe_reset(spec, request, targets, made, newest, older, on_count=lambda *_: None)
        back = describe_reset(spec, request, targets, made[:1], newest, older, on_count=lambda *_: None)
        old_head = targets[spec.table.name].table.metadata.snapshots[0].snapshot_id
    said = "\n".join(reset_sentences(plan, "frazil"))
    assert "4 offsets are passed over for good" in said
    assert "20 offsets are read again, on orders.payments and orders.payments_dead alike" in said
    assert "In the tables from these offsets now: 18 rows of orders.payments; 2 dead letters." in said
    assert (
        "  DELETE FROM frazil.orders.payments WHERE _kafka_topic = 't.v1' AND _kafka_partition = 0 AND "
        "_kafka_offset >= 30 AND _kafka_offset < 50;" in said
    )
    assert "WHERE stream = 'payments' AND topic = 't.v1' AND `partition` = 0 AND `offset` >= 30" in said
    assert "rollback" not in said, "a rollback would not pass anything over"
    assert "Complete through: 1970-01-01T00:00:02.000+00:00 now, then 1970-01-01T00:00:01.000+00:00." in said
    steps = "\n".join(reset_sentences(back, "frazil"))
    assert f"CALL frazil.system.rollback_to_snapshot('orders.payments', {old_head});" in steps
    assert "frazil accept payments --rollback reland" in steps
    facts = reset_facts(plan, "frazil", done=False)
    assert facts["command"] == "frazil reset-offsets payments --to t.v1:0=30,t.v1:1=9 --reason TEXT --yes"
    assert (facts["before"], facts["after"]) == ({"t.v1": {"0": 50, "1": 5}}, {"t.v1": {"0": 30, "1": 9}})
    assert facts["partitions"][1]["no_longer_kept"] == 2
    assert plan.undo == "frazil reset-offsets payments --to t.v1:0=50 --reason 'undo the reset' --yes"


@pytest.mark.parametrize(
    ("late", "after", "warns"),
    [("dead_letter", 30, True), ("land", 30, False), ("dead_letter", 55, False), ("table", 30, True)],
)
def test_going_back_behind_the_watermark_says_what_becomes_of_old_records(
    settings: Settings, spec: StreamSpec, late: str, after: int, warns: bool
) -> None:
    block = EventTime.model_validate({"column": "created_at", "late": late})
    with connect_catalog(settings) as catalog:
        targets = tables(catalog, spec)
        newest = targets[spec.table.name].newest
        assert newest is not None
        newest = replace(newest, event_time=EventTimes("created_at", 1_700_000_000_000))
        made = (ResetMove(P0, 50, after, OffsetRange(0, 60)),)
        spec = spec.model_copy(update={"event_time": block})
        if spec.late_table:
            none = UNPARTITIONED_PARTITION_SPEC
            ensure_table(catalog, spec.late_table, spec.table_schema, none, create_table_properties({}))
            targets[spec.late_table] = Target(catalog, spec.late_table, "payments")
            targets[spec.late_table].read()
        request = reset_request(f"t.v1:0={after}")
        plan = describe_reset(spec, request, targets, made, newest, [], on_count=lambda *_: None)
    said = "\n".join(reset_sentences(plan, "frazil"))
    assert ("The watermark stays at 2023-11-14T22:13:20.000+00:00" in said) is warns
    assert ("set event_time.late to land first" in said) is warns
    assert ("goes to orders.payments_late" in said) is (late == "table")


def test_a_snapshot_after_an_earlier_reset_is_no_way_back(settings: Settings, spec: StreamSpec) -> None:
    request = reset_request("t.v1:0=40")
    made = (ResetMove(P0, 50, 40, OffsetRange(0, 60)),)
    with connect_catalog(settings) as catalog:
        targets = tables(catalog, spec)
        for epoch, position in ((3, 30), (4, 50)):
            stamp = Stamp("payments", "accept", 1, epoch, "c", {P0: position}, {P0: position})
            targets[spec.table.name].claim(epoch, lambda newest, stamp=stamp: stamp)
        plan = describe_reset(spec, request, targets, made, None, [], on_count=lambda *_: None)
    assert plan.rollback is not None
    assert plan.rollback.position == {P0: 0}, (
        "where the stream stood at 30, its first records up to 50 are in the table"
    )


def test_tables_that_are_not_the_streams_own_are_refused(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        with pytest.raises(ResetRefusedError, match="has never run"):
            existing_targets(spec, catalog, {})
        tables(catalog, spec)
        assert list(existing_targets(spec, catalog, {})) == ["orders.payments", "orders.payments_dead"]
        with pytest.raises(FrazilError, match="dropped and created again"):
            existing_targets(spec, catalog, {"orders.payments_dead": "another"})
        catalog.drop_table("orders.payments_dead")
        with pytest.raises(FrazilError, match=r"orders\.payments_dead was dropped"):
            existing_targets(spec, catalog, {"orders.payments_dead": "another"})


def test_the_job_is_tagged_and_tells_why_not(deployment: Deployment) -> None:
    config = ResetConfig(stream="payments", to="earliest", reason="a wrong column", by="me")
    assert config.dry_run, "a run without more only looks"
    with dg.DagsterInstance.ephemeral() as instance:
        result = reset_offsets_job.execute_in_process(
            run_config=reset_run_config(config),
            instance=instance,
            resources={"deployment": DeploymentResource.of(deployment)},
            raise_on_error=False,
        )
        run = instance.get_run_by_id(result.run_id)
    assert not result.success
    assert run is not None
    assert reset_tags(config).items() <= run.tags.items()
    assert {"frazil/stream": "payments", "frazil/action": "reset_offsets"}.items() <= run.tags.items()
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(ResetRefusedError, match="has never run"):
        RunRecorder(deployment, instance).run(
            reset_job_of, perform_reset, config, reset_run_config(config), reset_tags(config)
        )


def test_the_command_needs_a_reason_to_do_it(deployment: Deployment) -> None:
    for arguments, said in (
        (["--to", "earliest", "--yes"], "A reset needs a reason"),
        (["--to", "nowhere"], "'nowhere' names no position"),
        (["--to", "earliest"], "no stream has run yet"),
    ):
        result = CliRunner().invoke(main, ["--home", str(deployment.home), "reset-offsets", "payments", *arguments])
        assert result.exit_code == 1
        assert said in result.output
        assert "Next: " in result.output


def test_at_a_terminal_the_plan_is_shown_and_asked_about(
    deployment: Deployment, settings: Settings, spec: StreamSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_catalog(settings) as catalog:
        targets = tables(catalog, spec)
        made = (ResetMove(P0, 50, 30, OffsetRange(0, 60)),)
        newest = targets[spec.table.name].newest
        plan = describe_reset(spec, reset_request("t.v1:0=30"), targets, made, newest, [], on_count=lambda *_: None)
    carried_out: list[ResetConfig] = []
    # Kafka alone is stood in for; the plan is that of real tables.
    monkeypatch.setattr(reset_offsets, "perform_reset", lambda *_: plan)
    monkeypatch.setattr(reset_offsets, "_carried_out", lambda _, config: (carried_out.append(config), (plan, None))[1])
    command = ["--home", str(deployment.home), "reset-offsets", "payments", "--to", "t.v1:0=30"]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0 and "Nothing was changed." in shown.stdout and not carried_out
    monkeypatch.setattr(reset_offsets, "can_ask", lambda: True)
    monkeypatch.setattr("orchestration.cli.common.consent.can_ask", lambda: True)
    assert "Nothing was changed." in CliRunner().invoke(main, [*command, "--dry-run"]).stdout
    assert CliRunner().invoke(main, command, input="n\n").exit_code == 1
    assert not carried_out
    done = CliRunner().invoke(main, command, input="y\nread again\n")
    assert done.exit_code == 0, done.output
    assert "Done, and recorded on" in done.stdout
    (config,) = carried_out
    assert (config.dry_run, config.reason, config.to) == (False, "read again", "t.v1:0=30")
