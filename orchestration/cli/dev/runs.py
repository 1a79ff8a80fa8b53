"""Runs in the Dagster instance of a deployment: why one failed, and ending those of services that end."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.system.deadline import within

if TYPE_CHECKING:
    import dagster as dg

# Which code server a run was given to; Dagster's UI hides the tag.
_SERVER_TAG = ".dagster/grpc_info"
_POLL_SECONDS = 0.2


def why_failed(home: Path, run_id: str) -> str:
    """What a failed run says for itself.

    Args:
        home: Of the instance.
        run_id: The run's.
    """
    import dagster as dg

    with dg.DagsterInstance.from_config(str(home)) as instance:
        entries = instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    words: list[str | None] = []
    for event in (entry.get_dagster_event() for entry in entries):
        step = event.step_failure_data if event.is_step_failure else None
        words.append(step.user_failure_data.description if step and step.user_failure_data else None)
        words.append(step.error.message if step and step.error else event.message)
    return next(filter(None, words), "it does not say why")


def end_runs(home: Path, sockets: Collection[str], since: float, deadline_seconds: float) -> None:
    """End runs that are under way, and wait until they have ended or the deadline has passed. Never raises.

    Runs of other code servers, as of a Dagster that shares the storage, are left alone.

    Args:
        home: Of the instance.
        sockets: Of the code servers whose runs are meant.
        since: Runs that wait for a code server are meant if they were made after this; seconds since 1970.
        deadline_seconds: For all of it.
    """
    # Where all ends at once, storage and code servers may take their time.
    with contextlib.suppress(Exception):
        within(deadline_seconds, "Dagster", lambda: _end_runs(home, sockets, since, deadline_seconds))


def _end_runs(home: Path, sockets: Collection[str], since: float, deadline_seconds: float) -> None:
    import dagster as dg

    deadline = time.monotonic() + deadline_seconds
    asked: set[str] = set()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        while time.monotonic() < deadline and (runs := _runs_of(instance, sockets, since)):
            for run in runs:
                ends = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)
                if run.status in ends and run.run_id not in asked:
                    asked.add(run.run_id)
                    with contextlib.suppress(Exception):
                        instance.run_coordinator.cancel_run(run.run_id)
            time.sleep(_POLL_SECONDS)


def _runs_of(instance: dg.DagsterInstance, sockets: Collection[str], since: float) -> list[dg.DagsterRun]:
    import dagster as dg

    status = dg.DagsterRunStatus
    made = datetime.fromtimestamp(since, UTC)
    waiting = instance.get_runs(dg.RunsFilter(statuses=[status.QUEUED, status.NOT_STARTED], created_after=made))
    servers = [json.dumps({"host": "localhost", "socket": socket}, sort_keys=True) for socket in sorted(sockets)]
    if not servers:
        return list(waiting)
    begun = [status.STARTING, status.STARTED, status.CANCELING]
    return [*waiting, *instance.get_runs(dg.RunsFilter(statuses=begun, tags={_SERVER_TAG: servers}))]
