"""Old history of Dagster's in a real PostgreSQL: what goes, what stays, and that Dagster reads what is left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import psycopg
import pytest
import yaml

from jobs.base.errors import FrazilError
from orchestration.jobs import history as history_jobs
from orchestration.jobs.history import OP, Deleted, delete_history, history_job
from tests.helpers.dagster_database import PASSWORD_VARIABLE, dagster_storage
from tests.helpers.database_server import PASSWORD, DatabaseServer

pytestmark = pytest.mark.integration
BUSY, STILL, HOURS = dg.AssetKey(["lake", "busy"]), dg.AssetKey(["lake", "still"]), dg.AssetKey(["lake", "hours"])
_numbers = itertools.count()


class Storage:
    """An instance in a database of its own."""

    def __init__(self, home: Path, server: DatabaseServer) -> None:
        self._server, self._name = server, f"dagster_{next(_numbers)}"
        storage, _ = dagster_storage(server, self._name)
        (home / "dagster.yaml").write_text(yaml.safe_dump(storage | {"telemetry": {"enabled": False}}))
        self.instance: dg.DagsterInstance = dg.DagsterInstance.from_config(str(home))

    def execute(self, statement: str) -> list[tuple[int, ...]]:
        url = self._server.url_of(self._name)
        with psycopg.connect(url, password=PASSWORD, autocommit=True) as connection:
            done = connection.execute(statement)  # pyright: ignore[reportCallIssue, reportArgumentType]
            return done.fetchall() if done.description else []

    def count(self, table: str, where: str = "true") -> int:
        return self.execute(f"SELECT count(*) FROM {table} WHERE {where}")[0][0]

    def tell(self, key: dg.AssetKey, times: int) -> None:
        for number in range(times):
            tags = {"dagster/data_version": str(number)}
            self.instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata={"n": number}, tags=tags))
            self.instance.report_runless_asset_event(dg.AssetObservation(key, metadata={"n": number}))
            for check in ("alive", "adds_up"):
                passed = number % 2 == 0
                self.instance.report_runless_asset_event(
                    dg.AssetCheckEvaluation(asset_key=key, check_name=check, passed=passed, metadata={"n": number})
                )

    def control_run(self, name: str) -> None:
        @dg.op(name="nothing")
        def nothing() -> None:
            pass

        @dg.job(name=name)
        def job() -> None:
            nothing()

        assert job.execute_in_process(instance=self.instance).success

    def grow_old(self) -> None:
        """All that is there now was forty days ago."""
        for table, columns in {
            "event_logs": ("timestamp",),
            "asset_check_executions": ("create_timestamp", "evaluation_event_timestamp"),
            "runs": ("create_timestamp", "update_timestamp"),
        }.items():
            moved = ", ".join(f"{column} = {column} - interval '40 days'" for column in columns)
            self.execute(f"UPDATE {table} SET {moved}")

    def last(self, key: dg.AssetKey) -> tuple[object, ...]:
        """What Dagster tells of an asset: the newest materialization and observation, and each check's evaluation."""
        materialized = self.instance.fetch_materializations(key, limit=1).records[0].asset_materialization
        observed = self.instance.fetch_observations(key, limit=1).records[0].asset_observation
        assert materialized is not None and observed is not None
        checks = []
        for check in ("alive", "adds_up"):
            history = self.instance.event_log_storage.get_asset_check_execution_history(
                dg.AssetCheckKey(key, check), limit=1
            )
            event = history[0].event
            assert event is not None and event.dagster_event is not None
            checks.append((history[0].status.value, event.dagster_event.asset_check_evaluation_data.metadata))
        return materialized.metadata["n"].value, observed.metadata["n"].value, checks


@pytest.fixture
def storage(tmp_path: Path, database: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    made = Storage(tmp_path, database)
    with made.instance:
        yield made


def filled(storage: Storage) -> None:
    storage.tell(STILL, 3)
    storage.tell(BUSY, 20)
    for hour in range(4):
        storage.instance.report_runless_asset_event(dg.AssetMaterialization(HOURS, partition=f"2026-01-01-0{hour}"))
    storage.control_run("frazil_control")
    storage.control_run("another_job")
    storage.grow_old()
    storage.tell(BUSY, 5)
    storage.control_run("frazil_control")


def test_what_is_old_goes_and_everybodys_last_word_stays(storage: Storage) -> None:
    filled(storage)
    before = {key: storage.last(key) for key in (BUSY, STILL)}
    done = delete_history(storage.instance, datetime.now(UTC) - timedelta(days=30), ["frazil_control"], page=3)
    # Of the still one's three, the last stays; of each event a sensor told, one row.
    assert done == Deleted(events=20 * 4 + 2 * 4, checks=20 * 2 + 2 * 2, runs=1)
    assert {key: storage.last(key) for key in (BUSY, STILL)} == before
    assert storage.count("event_logs", "run_id = ''") == 5 * 4 + 4 + 4
    assert storage.count("asset_check_executions") == 5 * 2 + 2
    assert storage.count("asset_event_tags", "event_id NOT IN (SELECT id FROM event_logs)") == 0
    assert len(storage.instance.get_materialized_partitions(HOURS)) == 4
    assert [run.job_name for run in storage.instance.get_runs()] == ["frazil_control", "another_job"]
    assert storage.count("event_logs", "run_id <> '' AND run_id NOT IN (SELECT run_id FROM runs)") == 0
    again = delete_history(storage.instance, datetime.now(UTC) - timedelta(days=30), ["frazil_control"], page=3)
    assert again == Deleted(0, 0, 0)


def test_tables_of_another_release_are_left_alone_and_the_job_says_how_much_it_deleted(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(storage)
    rows = storage.count("event_logs")
    ((revision,),) = storage.execute("SELECT version_num FROM alembic_version")
    storage.execute("UPDATE alembic_version SET version_num = '000000000000'")
    with pytest.raises(FrazilError, match="those of another release: revision 000000000000") as caught:
        delete_history(storage.instance, datetime.now(UTC), [])
    assert caught.value.fix == "stop Dagster's services, then dagster instance migrate"
    with monkeypatch.context() as patch:
        patch.setattr(history_jobs, "LINE", "1.12")
        with pytest.raises(FrazilError, match=r"the tables of 1\.12 are those that frazil knows"):
            delete_history(storage.instance, datetime.now(UTC), [])
    assert storage.count("event_logs") == rows

    storage.execute(f"UPDATE alembic_version SET version_num = '{revision}'")
    done = history_job.execute_in_process(
        instance=storage.instance, run_config={"ops": {OP: {"config": {"keep_days": 35}}}}
    )
    (output,) = [event for event in done.all_events if event.is_successful_output]
    metadata = {key: value.value for key, value in output.step_output_data.metadata.items()}
    assert metadata["events_deleted"] == 88
    assert (metadata["checks_deleted"], metadata["runs_deleted"]) == (44, 1)
