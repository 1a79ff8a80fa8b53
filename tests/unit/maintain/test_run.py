"""What a run does without Spark: the lock, what expiry is kept from, catalogs that go away, unknown tables."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.commit.history import history, history_of
from jobs.commit.lineage import line_of
from jobs.commit.offsets import OffsetRange
from jobs.commit.stamps import property_key
from jobs.errors import FrazilError
from jobs.maintain import execution, run
from jobs.maintain import work as work_module
from jobs.maintain.expire import expire
from jobs.maintain.facts import TableFacts
from jobs.maintain.history import read_maintained, table_store
from jobs.maintain.holding import fill_ledger, holds
from jobs.maintain.lock import TableBusyError, table_lock
from jobs.maintain.measure import measure
from jobs.maintain.plan import Plan, Step
from jobs.maintain.results import Progress, StepResult
from jobs.maintain.work import CatalogAwayError, Work
from jobs.spec.policy import Policy
from jobs.spec.settings import Settings, SparkSettings
from jobs.state.lease import Lease
from jobs.state.local_store import LocalStore
from jobs.state.paths import stream_folder
from jobs.verify import ledger_fill
from tests.helpers.lake import NAME, P0, STREAM, Lake, later

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPIRE = {"expire": {"min_snapshots": 1, "keep": "1m", "max_snapshots": 2}}
STEP = Step("expire", "", None, "")


class Started(Exception):
    """Spark would have been started."""


def spark() -> SparkSession:
    raise Started


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "home")
    for _ in range(3):
        made.land(days=1, rows=1)
    return made


def work(lake: Lake, policy: dict[str, Any] | None = None, **options: Any) -> Work:
    return Work(
        lake.catalog,
        lake.settings,
        options.pop("specs", [lake.spec]),
        NAME,
        Policy.model_validate(policy or EXPIRE),
        spark,
        **options,
    )


def set_properties(table: Table, **properties: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(properties)


def held(lake: Lake, now: datetime | None = None, **options: Any) -> list[str]:
    specs = options.pop("specs", [lake.spec])
    return [
        hold.what for hold in holds(lake.catalog, lake.settings, specs, NAME, lake.table(), now or datetime.now(UTC))
    ]


def test_a_healthy_table_and_a_dry_run_start_nothing_and_lock_nothing(lake: Lake) -> None:
    assert lake.maintain(spark, {}).done == ()
    planned = lake.maintain(spark, {"compact": {"min_files": 2}}, dry_run=True)
    assert [step.action for step in planned.plan.steps] == ["compact"]
    assert table_store(lake.settings, planned.plan.uuid).keys("*") == []


def test_one_at_a_time(lake: Lake) -> None:
    policy = {"compact": {"min_files": 2}}
    with table_lock(lake.settings, NAME, str(lake.table().metadata.table_uuid)) as lock:
        lock.verify()
        result = lake.maintain(spark, policy)
        assert result.skipped is not None and "is being maintained by process" in result.skipped
        with (
            pytest.raises(TableBusyError, match="is being maintained"),
            table_lock(lake.settings, NAME, result.plan.uuid),
        ):
            pass
    # Given back: Spark would be started now, which is the step's own failure and no other's.
    result = lake.maintain(spark, policy)
    assert [each.error is not None and "Started" in each.error for each in result.done] == [True]
    noted = read_maintained(table_store(lake.settings, result.plan.uuid))
    assert [(each.action, each.failures) for each in noted.entries.values()] == [("compact", 1)]


def test_a_lock_that_was_lost_ends_it(lake: Lake) -> None:
    uuid = str(lake.table().metadata.table_uuid)
    with table_lock(lake.settings, NAME, uuid) as lock:
        store = table_store(lake.settings, uuid)
        for record in store.keys("lease-*.json"):
            store.put("lease-00000099.json", store.get(record) or b"")
            store.delete(record)
        with pytest.raises(FrazilError, match="the lock of its maintenance was lost"):
            lock.verify()


def test_the_ledger_is_filled_before_anything_expires(lake: Lake) -> None:
    with pytest.raises(Started):
        expire(work(lake, now=later), STEP)
    assert ledger_fill.fill_ledger(lake.catalog, lake.settings, [lake.spec]).rows == 0
    assert held(lake) == []


def test_what_the_ledger_does_not_have_stays(lake: Lake) -> None:
    # Nobody can fill it: somebody else's table has its name.
    lake.catalog.create_namespace_if_not_exists("frazil")
    lake.catalog.create_table("frazil.ledger", lake.table().schema())
    assert fill_ledger(lake.catalog, lake.settings, [lake.spec], NAME) is not None
    with pytest.raises(FrazilError, match=r"frazil.ledger is no ledger"):
        expire(work(lake, now=later), STEP)
    lake.catalog.drop_table("frazil.ledger")
    assert held(lake) == ["ledger"]
    # A stream that no file names any more is not filled in by anybody: it holds for some days.
    assert held(lake, specs=[]) == ["ledger"]
    week = timedelta(days=8)
    (hold,) = holds(lake.catalog, lake.settings, [], NAME, lake.table(), datetime.now(UTC) + week)
    assert "which no file names any more" in hold.why and hold.since > datetime.now(UTC)


def test_a_readers_snapshot_stays_and_says_so(lake: Lake) -> None:
    (first, *_) = lake.table().snapshots()
    set_properties(lake.table(), **{"frazil.reader.dashboards": str(first.snapshot_id)})
    found = expire(work(lake, now=later), STEP)
    assert (found.done, found.files_before, found.files_after) == (False, 4, 4)
    assert "reader dashboards" in str(found.detail["held_by"])
    assert "4 snapshots stay, of which the policy keeps 2 at most" in str(found.detail["warning"])
    # The plan says so before.
    planned = lake.maintain(spark, EXPIRE, only={"expire"}, now=later, dry_run=True).plan
    assert planned.steps == ()
    assert "3 of those that are due stay, for reader dashboards" in planned.skips[0].reason


def test_replays_at_work_and_pending_records_hold(lake: Lake) -> None:
    fill_ledger(lake.catalog, lake.settings, [lake.spec], NAME)
    lease = Lease(LocalStore(stream_folder(lake.settings, STREAM).root / "replay"), "payments~replay", 30)
    lease.acquire(above=0)
    assert held(lake) == ["replay of payments"]
    lease.release()
    assert held(lake) == []
    lake.pend()
    assert held(lake) == ["pending record"]
    # The stream's own table only.
    other = lake.table(f"{NAME}_dead")
    assert holds(lake.catalog, lake.settings, [lake.spec], f"{NAME}_dead", other, datetime.now(UTC)) == []


def test_a_plan_knows_who_holds_snapshots(lake: Lake) -> None:
    def planned(**options: Any) -> Plan:
        return lake.maintain(spark, EXPIRE, only={"expire"}, now=later, dry_run=True, **options).plan

    # The ledger is filled first; of a stream that no file names nobody fills it.
    assert [(step.files_before, step.files_after) for step in planned().steps] == [(4, 1)]
    # All but the claim before the first batch.
    (unnamed,) = planned(specs=[]).steps
    assert unnamed.files_after == 3 and "2 of those that are due stay, for ledger" in unnamed.reason
    lake.pend()
    assert "for pending record" in planned().skips[0].reason
    with lake.table().transaction() as transaction:
        transaction.remove_properties(property_key(STREAM))
    (step,) = planned().steps
    assert step.files_before == step.files_after and "None will go:" in step.reason


def test_a_window_of_failures_holds(lake: Lake) -> None:
    fill_ledger(lake.catalog, lake.settings, [lake.spec], NAME)
    errors = {"stop_above": {"window": {"of": "2h", "ratio": 0.1}}}
    spec = type(lake.spec).model_validate(lake.spec.model_dump(mode="json") | {"errors": errors})
    assert held(lake, specs=[spec]) == ["errors.stop_above.window"]


def test_a_changed_property_keeps_every_snapshot(lake: Lake) -> None:
    with lake.table().transaction() as transaction:
        transaction.remove_properties(property_key(STREAM))
    with pytest.raises(FrazilError, match="is not the newest stamp"):
        expire(work(lake, now=later), STEP)


def test_after_everything_has_expired_a_driver_begins_where_it_stood(lake: Lake) -> None:
    """In the metadata alone; `tests/integration/test_maintain.py` has Spark do it."""
    table = lake.table()
    table.append(table.scan().to_arrow().slice(0, 0))
    lake.forget()
    (only,) = lake.table().snapshots()
    assert only.summary is not None and "frazil.stamp" not in only.summary.additional_properties
    reached = lake.rows
    past = history(lake.table().metadata, STREAM)
    assert (past.stamped_ancestor, past.rolled_back) == (None, False)
    target = lake.take_over()
    assert lake.rows == reached and target.newest is not None
    assert target.newest.position == {P0: reached}
    lake.land(days=1, rows=1)
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)
    assert OffsetRange(reached, lake.rows) == OffsetRange(3, 4)


class Expired(Exception):
    """The procedure was called."""


def test_before_snapshots_go_the_line_of_commits_is_moved_up_to_the_head(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others commit to the table of a stream that rests, which the expiry must not make look like a rollback."""

    def procedures(self: Work) -> Any:
        raise Expired

    monkeypatch.setattr(Work, "procedures", procedures)
    for _ in range(2):
        for _ in range(3):
            table = lake.table()
            table.append(table.scan().to_arrow().slice(0, 0))
        with pytest.raises(Expired):
            expire(work(lake, now=later), STEP)
        metadata = lake.table().metadata
        line, head = line_of(metadata.properties), metadata.current_snapshot()
        assert line is not None and head is not None and line.snapshot_id == head.snapshot_id
        lake.forget()
    for entry in lake.table().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    past = history_of(lake.table(), STREAM)
    assert (past.stamped_ancestor, past.rolled_back, past.doubt) == (None, False, False)


def test_a_catalog_that_goes_away_in_the_middle(lake: Lake) -> None:
    database = lake.settings.home / ".frazil" / "catalog.db"
    content = database.read_bytes()
    files = lake.files()

    def spoil(progress: Progress) -> None:
        if progress.state == "begins":
            database.write_bytes(b"no database" * 100)

    policy = {**EXPIRE, "compact": {"enabled": False}, "metadata": {"previous_versions": 5}}
    result = lake.maintain(spark, policy, now=later, on_progress=spoil)
    database.write_bytes(content)
    assert [each.step.action for each in result.done] == ["expire", "metadata"]
    assert "catalog frazil failed" in result.errors[0]
    assert result.errors[1].startswith("Not tried: table lake.payments: catalog frazil failed")
    assert result.after is None
    assert lake.files() == files


def test_tables_that_are_not_there_or_of_an_unknown_format(lake: Lake) -> None:
    with pytest.raises(FrazilError, match=r"table lake.nothing is not in the catalog frazil"):
        lake.maintain(spark, {}, name="lake.nothing")
    metadata = Path(lake.table().metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace('"format-version":2', '"format-version":9'))
    with pytest.raises(FrazilError, match=r"table lake.payments is of a format version"):
        lake.maintain(spark, {})
    metadata.unlink()
    with pytest.raises(FrazilError, match="the metadata that the catalog names are not there"):
        lake.maintain(spark, {})


def test_a_table_that_is_made_anew_meanwhile(lake: Lake) -> None:
    at = work(lake)
    at.uuid = "another"
    with pytest.raises(FrazilError, match="was dropped and created again"):
        at.load()


def test_orphans_are_not_looked_for_after_an_expiry_that_failed(lake: Lake) -> None:
    lake.forget()
    lake.land(days=1, rows=1)
    lake.land(days=1, rows=1)
    with lake.table().transaction() as transaction:
        transaction.remove_properties(property_key(STREAM))
    told: list[StepResult | None] = []
    result = lake.maintain(
        spark, EXPIRE, only={"expire", "orphans"}, now=later, on_progress=lambda progress: told.append(progress.result)
    )
    assert "is not the newest stamp" in result.errors[0]
    assert "since the expiry before it failed" in result.errors[1]
    noted = read_maintained(table_store(lake.settings, result.plan.uuid))
    assert [(each.action, each.failures) for each in noted.entries.values()] == [("expire", 1)]
    assert told == [None, result.done[0], None, result.done[1]]


def test_what_was_done_is_told_though_it_cannot_be_measured_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PASS", "hunter2")

    def measured(*args: Any, **options: Any) -> TableFacts:
        if "deep" in options:
            raise OSError("503 SlowDown for hunter2")
        return measure(*args, **options)

    monkeypatch.setattr(run, "measure", measured)
    lake.settings = with_secret(lake)
    result = lake.maintain(spark, {"metadata": {"previous_versions": 7}}, only={"metadata"})
    assert [each.done for each in result.done] == [True]
    assert result.after is None
    assert "could not be measured again: OSError: 503 SlowDown for ${env:PASS}" in caplog.text


def test_a_table_whose_last_steps_find_it_locked_is_measured_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def landed(at: Work, batch: Sequence[Step]) -> list[StepResult]:
        lake.land(days=1, rows=1)
        return [StepResult(step) for step in batch]

    monkeypatch.setattr(execution, "compact", landed)
    told: list[Progress] = []
    policy = {"compact": {"min_files": 2}, "metadata": {"previous_versions": 7}}
    maintenance = run.TableMaintenance(work(lake, policy), only={"compact", "metadata"}, on_progress=told.append)
    maintenance.carry_out(("compact",))
    with table_lock(lake.settings, NAME, str(lake.table().metadata.table_uuid)):
        maintenance.carry_out(("metadata",))
    result = maintenance.result()
    assert [(each.step.action, each.done) for each in result.done] == [("compact", True), ("metadata", False)]
    assert [error.split(" by ")[0] for error in result.errors] == ["Not tried: table lake.payments is being maintained"]
    assert told[-1].result is result.done[-1]
    assert result.after is not None
    assert result.after.snapshots == result.before.snapshots + 1


def with_secret(lake: Lake) -> Settings:
    conf = SparkSettings.model_validate({"conf": {"spark.some.password": "${env:PASS}"}})
    return lake.settings.model_copy(update={"spark": conf})


def test_secrets_in_a_failure_do_not_reach_the_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PASS", "hunter2")
    lake.settings = with_secret(lake)

    def refused() -> SparkSession:
        raise RuntimeError("no session for hunter2")

    result = lake.maintain(refused, {"compact": {"min_files": 2}})
    assert result.errors == ("table lake.payments: compact failed: RuntimeError: no session for ${env:PASS}",)
    assert "Traceback" in caplog.text and "no session for ${env:PASS}" in caplog.text
    assert "hunter2" not in caplog.text
    assert [record.exc_info for record in caplog.records if record.name == execution.__name__] == [None]


def test_a_jvm_that_ends_in_a_step_is_told_and_the_next_step_gets_another(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[bool] = []
    monkeypatch.setattr(execution, "jvm_is_gone", lambda: bool(gone))
    monkeypatch.setattr(work_module, "jvm_is_gone", lambda: bool(gone))
    made: list[object] = []
    monkeypatch.setattr(work_module, "Procedures", lambda session, *_: made.append(session) or session)

    def dies(work: Work, batch: Sequence[Step]) -> list[StepResult]:
        work.procedures()
        gone.append(True)
        raise ConnectionRefusedError(111, "Connection refused")

    def merged(work: Work, step: Step) -> StepResult:
        work.procedures()
        return StepResult(step)

    def session() -> Any:
        gone.clear()
        return len(made)

    monkeypatch.setattr(execution, "compact", dies)
    monkeypatch.setattr(execution, "manifests", merged)
    policy = {"compact": {"min_files": 2}, "manifests": {"max": 1}}
    result = lake.maintain(session, policy, only={"compact", "manifests"})
    assert made == [0, 1]
    (error,) = result.errors
    assert "compact failed, since Spark's JVM ended meanwhile" in error and "Connection refused" not in error
    assert "spark.driver_memory" in error
    noted = read_maintained(table_store(lake.settings, result.plan.uuid))
    assert {each.action: each.failures for each in noted.entries.values()} == {"compact": 1, "manifests": 0}


def test_a_catalog_that_hangs_is_not_waited_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "LOAD_SECONDS", 0.05)
    answer = threading.Event()

    class Hanging:
        def load_table(self, name: str) -> None:
            answer.wait(30)

    at = work(lake)
    at.catalog = cast("Catalog", Hanging())
    with pytest.raises(CatalogAwayError, match=r"table lake.payments: catalog frazil did not answer within") as told:
        at.load()
    answer.set()
    assert "frazil maintain lake.payments" in (told.value.fix or "")


def test_properties_of_the_metadata_are_set(lake: Lake) -> None:
    result = lake.maintain(spark, {"metadata": {"previous_versions": 7}}, only={"metadata"})
    assert result.errors == ()
    assert lake.table().properties["write.metadata.previous-versions-max"] == "7"
    again = lake.maintain(spark, {"metadata": {"previous_versions": 7}}, only={"metadata"}, dry_run=True)
    assert again.plan.steps == ()


def test_another_run_that_was_quicker_is_seen_under_the_lock(lake: Lake) -> None:
    policy = {"metadata": {"previous_versions": 7}}
    inner: list[int] = []

    def quicker() -> datetime:
        # The clock is asked once when it plans, before the lock is taken.
        if not inner:
            inner.append(1)
            assert len(lake.maintain(spark, policy, only={"metadata"}).done) == 1
        return datetime.now(UTC)

    # It planned on what it had loaded before; under the lock it plans anew.
    assert lake.maintain(spark, policy, only={"metadata"}, now=quicker).done == ()
