"""How many days of Dagster's history the schedule keeps, and where it asks for nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from jobs.base.errors import FrazilError
from orchestration.jobs.history import DAYS_VARIABLE, days_to_keep, history_job, history_schedule, why_not


@pytest.mark.parametrize(("given", "days"), [(None, 30), ("", 30), ("1", 1), ("400", 400)])
def test_days_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch, given: str | None, days: int) -> None:
    monkeypatch.delenv(DAYS_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(DAYS_VARIABLE, given)
    assert days_to_keep() == days


@pytest.mark.parametrize("given", ["0", "-1", "a month", "1.5"])
def test_what_is_no_number_of_days_deletes_nothing(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(DAYS_VARIABLE, given)
    with pytest.raises(FrazilError, match="FRAZIL_HISTORY_DAYS is a number of days, 1 at least") as caught:
        days_to_keep()
    assert repr(given) in caught.value.message


def test_the_schedule_is_off_at_first_and_asks_for_nothing_where_there_is_no_postgresql(tmp_path: Path) -> None:
    schedule, at = history_schedule(), datetime(2026, 1, 1, 3, 37, tzinfo=UTC)
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    with (
        dg.DagsterInstance.local_temp(str(tmp_path)) as instance,
        dg.build_schedule_context(instance, scheduled_execution_time=at) as context,
    ):
        tick = schedule.evaluate_tick(context)
    assert tick.run_requests == []
    assert tick.skip_message == "Dagster's storage is not in PostgreSQL but in sqlite, so nothing is deleted."


def test_the_job_deletes_nothing_in_sqlite_and_says_so(tmp_path: Path) -> None:
    key = dg.AssetKey(["lake", "busy"])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
        assert why_not(instance) == "Dagster's storage is not in PostgreSQL but in sqlite, so nothing is deleted."
        assert history_job.execute_in_process(instance=instance).success
        assert len(instance.fetch_materializations(key, limit=2).records) == 1
