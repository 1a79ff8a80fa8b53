"""Letters that are deleted by age: for whom, when, and what is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from orchestration.definitions import build_definitions
from orchestration.jobs.dead_letter_expiry import SCHEDULE, expire_dead_letters_job
from tests.helpers.dead_letters import BROKEN, DeadLetterWorld
from tests.unit.orchestration.dead_letter_deployment import (
    change_file,
    deployment_of,
    execute,
    failure_of,
    metadata_of,
    reported,
    resources,
)

OLD = datetime.now(UTC) - timedelta(days=45)


def keep(dead_letters: DeadLetterWorld, how_long: str = "30d") -> None:
    change_file(dead_letters, "park_after: 2}", f"park_after: 2}}, dead_letters: {{keep: {how_long}}}")


def run(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance, **config: Any) -> Any:
    return execute(dead_letters, instance, expire_dead_letters_job, {"ops": {"expire_letters": {"config": config}}})


def test_old_letters_go_and_the_asset_says_so(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    keep(dead_letters)
    dead_letters.add([BROKEN] * 2, seen=OLD)
    dead_letters.add([BROKEN] * 3, seen=datetime.now(UTC))
    dry = metadata_of(run(dead_letters, instance, dry_run=True), "expire_letters")
    assert (dry["letters_expired"], dead_letters.states()) == (2, {"new": 5})
    told = metadata_of(run(dead_letters, instance), "expire_letters")
    assert (told["letters_expired"], told["letters_never_replayed"]) == (2, 2)
    (row,) = [record.data for record in told["tables"]]
    assert (row["stream"], row["table"], row["files"]) == ("payments", "orders.payments_dead", 1)
    assert dead_letters.states() == {"new": 3}
    asset = reported(instance)
    assert (asset["dead_letters_total"], asset["dead_letters_expired"], asset["dagster/row_count"]) == (3, 2, 3)
    assert metadata_of(run(dead_letters, instance), "expire_letters")["letters_expired"] == 0


def test_letters_are_kept_for_ever_without_the_key(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    dead_letters.add([BROKEN], seen=OLD)
    assert metadata_of(run(dead_letters, instance), "expire_letters")["letters_expired"] == 0
    assert dead_letters.states() == {"new": 1}
    failed = failure_of(run(dead_letters, instance, streams=["payments"]))
    assert "keeps its dead letters for ever" in failed.description
    assert "There is no stream 'paymnts'" in failure_of(run(dead_letters, instance, streams=["paymnts"])).description


def test_one_streams_trouble_is_none_of_the_others(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    keep(dead_letters)
    dead_letters.add([BROKEN], seen=OLD)
    other = (
        dead_letters.spec_file.read_text()
        .replace("payments", "refunds")
        .replace("{keep: 30d}", "{keep: 30d, table: a.a}")
    )
    (dead_letters.home / "streams" / "aa.yaml").write_text(other)
    dead_letters.catalog.create_namespace("a")
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, StringType

    dead_letters.catalog.create_table("a.a", Schema(NestedField(1, "first_seen", StringType())))
    result = run(dead_letters, instance)
    assert not result.success
    assert dead_letters.states() == {}


def test_the_schedule_asks_once_a_day_where_a_stream_sets_it(
    dead_letters: DeadLetterWorld, instance: dg.DagsterInstance
) -> None:
    at = datetime(2026, 3, 2, 3, 17, tzinfo=UTC)

    def evaluated() -> Any:
        definitions = build_definitions(deployment_of(dead_letters))
        context = dg.build_schedule_context(
            instance,
            scheduled_execution_time=at,
            resources={"deployment": resources(dead_letters)["deployment"]},
            repository_def=None,
        )
        return definitions.resolve_schedule_def(SCHEDULE).evaluate_tick(context)

    assert evaluated().skip_message == "No stream sets errors.dead_letters.keep."
    keep(dead_letters)
    (request,) = evaluated().run_requests
    assert request.run_key == "expire:2026-03-02"
    schedule = build_definitions(deployment_of(dead_letters)).resolve_schedule_def(SCHEDULE)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("17 3 * * *", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
