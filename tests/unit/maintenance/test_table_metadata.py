"""Manifests that are rewritten while streams commit. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobs.maintenance.measure.maintenance_history import MaintenanceHistory, read_history, table_store
from jobs.maintenance.plan.iceberg_procedures import LostToOthersError, ProcedureError, Procedures
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.run.table_maintenance import record_results
from jobs.maintenance.run.table_metadata import rewrite_manifests
from tests.helpers.lake import Lake
from tests.unit.maintenance.contexts import table_context

DONE = {"rewritten_manifests_count": 30, "added_manifests_count": 1}


def lost() -> LostToOthersError:
    return LostToOthersError("ValidationException: Deleted manifest m.avro could not be found in the latest snapshot 7")


class Answers(Procedures):
    """Answers as Spark might, call by call."""

    def __init__(self, *answers: dict[str, int] | Exception) -> None:
        self.answers: Iterator[dict[str, int] | Exception] = iter(answers)

    def call(self, procedure: str, **arguments: object) -> dict[str, Any]:
        assert procedure == "rewrite_manifests"
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def rewritten(lake: Lake, *answers: dict[str, int] | Exception) -> StepResult:
    context = table_context(lake, {}, Answers(*answers), uuid=str(lake.table().metadata.table_uuid))
    step = Step("manifests", "", None, "", files_before=30, files_after=1)
    result = rewrite_manifests(context, step, longest_pause=0.0)
    record_results(context, [result])
    return result


def known(lake: Lake) -> MaintenanceHistory:
    return read_history(table_store(lake.settings, str(lake.table().metadata.table_uuid)))


def test_manifests_that_lose_against_a_stream_are_tried_again(lake: Lake) -> None:
    result = rewritten(lake, lost(), lost(), DONE)
    assert (result.error, result.done, result.detail["attempts"]) == (None, True, 3)
    assert known(lake).last("manifests") is not None


def test_manifests_that_lose_each_time_are_left_to_the_next_run(lake: Lake) -> None:
    before = known(lake)
    result = rewritten(lake, *[lost()] * 5)
    assert (result.error, result.done) == (None, False)
    assert "5 times others committed first" in str(result.detail["lost"])
    # It waits for nothing, as it would after failures.
    assert known(lake).entries == before.entries


def test_other_failures_of_manifests_are_failures(lake: Lake) -> None:
    with pytest.raises(ProcedureError, match="disk full"):
        rewritten(lake, lost(), ProcedureError("disk full"))
