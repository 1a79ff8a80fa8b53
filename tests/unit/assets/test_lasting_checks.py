"""Checks that a run has evaluated stay evaluated when the supervisor reports their table again."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import asyncio
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionResolvedStatus

from assets.last_reported import lasting

TABLE = dg.AssetKey(["lake", "orders"])
CHECK = dg.AssetCheckKey(TABLE, "exactly_once")


def definitions(*, lasts: bool) -> dg.Definitions:
    def audit(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(
            passed=True,
            asset_key=TABLE,
            check_name=CHECK.name,
            description="Complete.",
            metadata={"missing_records": 0},
        )

    made = dg.multi_asset_check(specs=[dg.AssetCheckSpec(CHECK.name, asset=TABLE)])(lasting(audit) if lasts else audit)
    return dg.Definitions(assets=[dg.AssetSpec(TABLE)], asset_checks=[made])


def is_evaluated(instance: dg.DagsterInstance) -> bool:
    """Whether Dagster's pages show the check's result, as the web server decides it."""
    storage = instance.event_log_storage
    record = storage.get_latest_asset_check_execution_by_key([CHECK])[CHECK]
    context = LoadingContextForTest(instance)
    resolved = asyncio.run(record.resolve_status(context))
    assert resolved is AssetCheckExecutionResolvedStatus.SUCCEEDED
    return asyncio.run(record.targets_latest_materialization(context))


@pytest.mark.parametrize("lasts", [True, False])
def test_a_check_of_a_run_is_evaluated_after_the_next_report(lasts: bool) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(TABLE))
        job = definitions(lasts=lasts).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=instance)
        (evaluated,) = result.get_asset_check_evaluations()
        assert (evaluated.passed, evaluated.description) == (True, "Complete.")
        assert is_evaluated(instance)
        instance.report_runless_asset_event(dg.AssetMaterialization(TABLE))
        assert is_evaluated(instance) is lasts
        history = instance.event_log_storage.get_asset_check_execution_history(CHECK, limit=5)
        said = [record.evaluation for record in history]
        assert {each.description for each in said if each is not None} == {"Complete."}
