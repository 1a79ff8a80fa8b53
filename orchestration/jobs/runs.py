"""Runs of frazil's jobs: their tags and configuration, their processes, and which are under way.

Dagster's own launcher does not look after its workers: the run of one that was killed stays STARTED until its longest
runtime has passed. So a run is tagged with its process, and one whose process is gone is not taken for one under way.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import dagster as dg

from jobs.base.system.boot import boot_id
from jobs.base.system.processes import is_alive, start_time

STREAM_TAG = "frazil/stream"
ACTION_TAG = "frazil/action"
REQUEST_TAG = "frazil/request"
REASON_TAG = "frazil/reason"
BY_TAG = "frazil/by"
MAX_RUNTIME_TAG = "dagster/max_runtime"
_TAG_LENGTH = 200
# Dagster's web UI shows no tag with this prefix, and a process is nothing for its list of runs.
WORKER_TAG = ".dagster/frazil_worker"
# Value of the tag of runs that began before an upgrade.
_FORMER_TAG = "frazil/worker"

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def action_tags(action: str, reason: str, by: str, *, stream: str = "", request: int = 0) -> dict[str, str]:
    """The tags of a run, those that say nothing left out.

    Args:
        stream: Stream that the supervisor leaves alone while the run is under way.
        request: The number of a request that no person made.
    """
    tags = {
        STREAM_TAG: stream,
        ACTION_TAG: action,
        REASON_TAG: reason,
        BY_TAG: by,
        REQUEST_TAG: str(request) if request else "",
    }
    return {key: value[:_TAG_LENGTH] for key, value in tags.items() if value}


def run_config(op: str, config: dg.Config) -> dict[str, Any]:
    """The configuration of a run whose job asks one op, or one graph."""
    return {"ops": {op: {"config": config.model_dump(mode="json")}}}


def runs_under_way(
    instance: dg.DagsterInstance, *, job: str | None = None, tags: Mapping[str, str] | None = None
) -> list[dg.DagsterRun]:
    """The runs that wait or work, the newest first. Those whose process is gone are given up, which frees their pool.

    Args:
        job: Only of this job.
        tags: Only with these tags.
    """
    runs = instance.get_runs(dg.RunsFilter(job_name=job, tags=tags, statuses=_UNDER_WAY))
    return [run for run in runs if not give_up_if_gone(instance, run)]


def this_worker(run_id: str) -> str:
    """The value of a run's tag that names this process as the one that carries it out."""
    pid = os.getpid()
    return f"{run_id} {pid} {start_time(pid)} {boot_id()} {socket.gethostname()}"


def tag_run(context: dg.OpExecutionContext, tags: Mapping[str, str]) -> None:
    """Tag the run with the process that carries it out, and with its action if whoever asked for it did not."""
    missing = {key: value for key, value in tags.items() if key not in context.run.tags}
    try:
        context.instance.add_run_tags(context.run_id, {WORKER_TAG: this_worker(context.run_id), **missing})
    except Exception as problem:
        # A run goes on if its tags cannot be written.
        context.log.warning(f"the run could not be tagged: {problem}")


def run_is_gone(worker: str, run_id: str) -> bool:
    """Whether the process of a run's tag is known to be gone; False if that cannot be told from here."""
    tagged, _, rest = worker.partition(" ")
    # A run that is executed again in the UI has the tags of the run before it until its process writes its own.
    if tagged != run_id:
        return False
    pid, _, rest = rest.partition(" ")
    started, _, rest = rest.partition(" ")
    boot, _, host = rest.partition(" ")
    if not pid.isdecimal() or host != socket.gethostname():
        return False
    return boot != boot_id() or not is_alive(int(pid), started)


def give_up_if_gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Report a run as failed if its process is gone, and say whether it is over."""
    worker = run.tags.get(WORKER_TAG) or run.tags.get(_FORMER_TAG, "")
    if not run_is_gone(worker, run.run_id):
        return False
    # It may have ended properly since the run was read; a process that is gone writes nothing any more.
    now = instance.get_run_by_id(run.run_id)
    if now is not None and not now.is_finished:
        instance.report_run_failed(now, "The process of this run has ended. Its changes to the stream stay.")
    return True
