"""Assets of the deployment itself: the supervisor, and the invalid files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

import dagster as dg

from jobs.config.documents.validation import SpecError

SUPERVISOR_KEY = dg.AssetKey(["frazil", "supervisor"])


def supervisor_asset() -> dg.AssetSpec:
    """The external asset that turns stale when the supervisor does not run."""
    return dg.AssetSpec(
        SUPERVISOR_KEY,
        description=(
            "All streams, as the sensor `frazil_reconcile` reports them every two minutes, and at once when a stream "
            "needs a person.\n\n"
            "- `needs_a_hand`: streams that need a command, with the command.\n"
            "- `all_streams`: every stream. Times are ages at `as_of`: of the state (`since`), of the newest commit, "
            "and of the time through which the table is complete. `letters` are waiting dead letters.\n\n"
            "If this asset turns stale, the sensor does not run: failed drivers are not started again, and checks are "
            "old. Running drivers go on, and their watchdogs restart killed ones. Look at the sensor's newest tick, "
            "and at Dagster's daemon."
        ),
        group_name="supervisor",
        kinds={"dagster"},
        freshness_policy=dg.FreshnessPolicy.time_window(
            fail_window=timedelta(minutes=10), warn_window=timedelta(minutes=5)
        ),
    )


PROBLEMS_KEY = dg.AssetKey(["frazil", "problems"])


def problem_assets(errors: Sequence[SpecError], still_shown: Collection[str] = ()) -> list[dg.AssetSpec]:
    """One external asset that lists the problems of all invalid files; none if there is no problem.

    Args:
        still_shown: Streams of invalid files that are still shown, as they were launched last.
    """
    problems = [problem for error in errors for problem in error.problems]
    if not problems:
        return []
    listed = "\n".join(f"- `{problem}`" for problem in problems)
    shown = ", ".join(f"`{stream}`" for stream in sorted(still_shown))
    fate = (
        f"their streams are missing, but for {shown}, shown as launched last" if shown else "their streams are missing"
    )
    return [
        dg.AssetSpec(
            PROBLEMS_KEY,
            description=f"Files that cannot be read; {fate}. Correct them and reload.\n\n{listed}",
            group_name="problems",
            metadata={"problems": len(problems)},
        )
    ]
