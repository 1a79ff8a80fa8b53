"""Which process carries a control run out, so that a run whose process is gone is not taken for one under way.

Dagster's own launcher does not look after its workers: the run of one that was killed stays STARTED until its longest
runtime has passed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import dagster as dg

from jobs.system.boot import boot_id
from jobs.system.processes import is_alive, start_time

# Dagster's web UI shows no tag with this prefix, and a process is nothing for its list of runs.
WORKER_TAG = ".dagster/frazil_worker"
# Of runs that began before an upgrade.
_FORMER_TAG = "frazil/worker"

UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def this_worker(run_id: str) -> str:
    """The tag's value for a run that this process carries out."""
    pid = os.getpid()
    return f"{run_id} {pid} {start_time(pid)} {boot_id()} {socket.gethostname()}"


def tag_run(context: dg.OpExecutionContext, tags: Mapping[str, str]) -> None:
    """Say on the run which process carries it out, and what it does if whoever asked for it did not."""
    missing = {key: value for key, value in tags.items() if key not in context.run.tags}
    try:
        context.instance.add_run_tags(context.run_id, {WORKER_TAG: this_worker(context.run_id), **missing})
    except Exception as problem:
        # What the run does matters more than its tags.
        context.log.warning(f"the run could not be tagged: {problem}")


def is_gone(worker: str, run_id: str) -> bool:
    """Whether the process of a run's tag is known to be gone; False if that cannot be told from here."""
    told, _, rest = worker.partition(" ")
    # A run that is executed anew in the UI has the tags of the run before it until its process writes its own.
    if told != run_id:
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
    if not is_gone(worker, run.run_id):
        return False
    # It may have ended properly since the run was read; a process that is gone writes nothing any more.
    now = instance.get_run_by_id(run.run_id)
    if now is not None and not now.is_finished:
        instance.report_run_failed(now, "The process of this run is gone. What it did to the stream stays done.")
    return True
