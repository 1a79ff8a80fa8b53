"""Last reported check results and dead-letter counts, for runs that do not evaluate them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import dagster as dg

from jobs.config.stream.models import StreamSpec

CheckFunction = Callable[..., Iterator[dg.AssetCheckResult]]
_SEARCHED = 20
_KEPT = "As of "
_LETTERS = ("letters", "letters_as_of")


def is_driver_only(context: dg.AssetCheckExecutionContext, spec: StreamSpec, table_key: dg.AssetKey) -> bool:
    """Whether a check repeats its last result: its run also materializes the table of a continuous stream.

    Such a materialization takes moments, while an audit takes longer the more offsets there are. A check that is
    executed by itself, or by its schedule, is evaluated.
    """
    return spec.continuous and table_key in context.job_def.asset_layer.selected_asset_keys


def lasting(check: CheckFunction) -> CheckFunction:
    """Decorate a check to report its results without a run as well, so that Dagster shows it as evaluated.

    Dagster shows a check as "Not evaluated" if a run other than the check's has materialized the table since. The
    supervisor materializes tables every few minutes without a run, and all reports without a run count as one run.
    """

    @wraps(check)
    def lasting_check(
        context: dg.AssetCheckExecutionContext, *arguments: Any, **named: Any
    ) -> Iterator[dg.AssetCheckResult]:
        for result in check(context, *arguments, **named):
            report_lasting(context.instance, result)
            yield result

    return lasting_check


def report_lasting(instance: dg.DagsterInstance, result: dg.AssetCheckResult) -> None:
    """Report the result of a check without a run."""
    assert result.asset_key is not None and result.check_name is not None
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=result.asset_key,
            check_name=result.check_name,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )
    )


DRIVER_ONLY = "by a run that only sees to the driver"


def last_check_result(
    context: dg.AssetCheckExecutionContext, key: dg.AssetKey, name: str, fix: str, why: str = DRIVER_ONLY
) -> dg.AssetCheckResult | None:
    """Return the last result of a check, with its time; None if it was never evaluated.

    Without this result, Dagster would show the check as skipped from this run on.

    Args:
        why: Why the check is not evaluated now, for the log.
    """
    history = context.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(key, name), limit=_SEARCHED
    )
    for record in history:
        event = record.event.dagster_event if record.event is not None else None
        if event is None or not isinstance(said := event.event_specific_data, dg.AssetCheckEvaluation):
            continue
        at = datetime.fromtimestamp(record.create_timestamp, UTC)
        context.log.info(f"{name} is not evaluated {why}. Next: {fix}")
        # If several runs in a row repeat the result, it keeps its first time.
        metadata = {"as_of": dg.MetadataValue.timestamp(at), **said.metadata}
        told = said.description or ""
        if not told.startswith(_KEPT):
            told = f"{_KEPT}{at:%Y-%m-%d %H:%M} UTC, not evaluated since: {told}"
        return dg.AssetCheckResult(
            passed=said.passed,
            asset_key=key,
            check_name=name,
            severity=said.severity,
            description=told,
            metadata=metadata,
        )
    context.log.info(f"{name} was never evaluated, and is not {why}. Next: {fix}")
    return None


def last_dead_letter_metadata(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    """Return the dead-letter counts in the metadata of the newest materialization."""
    newest = instance.get_latest_materialization_event(key)
    reported = newest.asset_materialization if newest is not None else None
    told = reported.metadata if reported is not None else {}
    return {name: value for name, value in told.items() if name.startswith("dead_letters_") or name in _LETTERS}
