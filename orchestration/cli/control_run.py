"""Actions on streams from the command line: the same job as in Dagster's UI, run in this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from jobs.errors import FrazilError, first_line
from jobs.supervise.stream_control import Done, StreamControl
from jobs.system.deadline import within
from orchestration.cli.dagster_instance import dagster_home, dagster_instance
from orchestration.jobs.control import (
    MAX_RUNTIME_SECONDS,
    ControlConfig,
    control_job,
    control_run_config,
    control_tags,
    outcome,
)
from orchestration.jobs.runs import MAX_RUNTIME_TAG, WORKER_TAG, this_worker
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

OPENING_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where actions are kept as runs.

    Attributes:
        instance: Dagster's; None if it cannot be opened.
        problem: Why not, or why the last action was not kept.
    """

    instance: dg.DagsterInstance | None
    problem: str | None


@contextmanager
def open_ledger(deployment: Deployment) -> Iterator[Ledger]:
    """Dagster's instance, or why there is none: a stream must be stoppable without it."""
    home = dagster_home(deployment)
    try:
        instance = within(OPENING_SECONDS, f"Dagster's storage in {home}", lambda: dagster_instance(deployment))
    except Exception as problem:
        yield Ledger(None, _sentence(problem, home))
        return
    with instance:
        yield Ledger(instance, None)


def carry_out(deployment: Deployment, ledger: Ledger, config: ControlConfig) -> tuple[Done, str | None]:
    """Do it, as a run if possible.

    Returns:
        What it came to, and why there is no run of it; None if there is one.

    Raises:
        FrazilError: It could not be done.
    """
    problem = ledger.problem
    if ledger.instance is not None:
        told: list[Done | BaseException] = []
        interrupted = False
        token, run_id = outcome.set(told), str(uuid.uuid4())
        try:
            result = control_job.execute_in_process(
                run_config={
                    **control_run_config(config),
                    # Its log lines are for Dagster's UI.
                    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                },
                instance=ledger.instance,
                run_id=run_id,
                # From the first moment on: a run that is killed before its step must not hold its stream up.
                tags={
                    **control_tags(config),
                    WORKER_TAG: this_worker(run_id),
                    MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS),
                },
                resources={"deployment": DeploymentResource.of(deployment)},
                raise_on_error=False,
            )
            interrupted = any("interrupted" in (event.message or "") for event in result.all_events)
        except dg.DagsterExecutionInterruptedError:
            interrupted = True
        except Exception as failure:
            # Dagster's storage went away, or is busy; what was done is done.
            problem = _sentence(failure, dagster_home(deployment))
        finally:
            outcome.reset(token)
        came = told[0] if told else None
        if isinstance(came, Done):
            return came, problem
        if isinstance(came, dg.DagsterExecutionInterruptedError) or (came is None and interrupted):
            raise KeyboardInterrupt
        if came is not None:
            raise came
        problem = problem or f"the run in {dagster_home(deployment)} did not come to its step"
    control = StreamControl(deployment.home, deployment.settings_file, config.stream)
    return control.perform(config.action.value, config.reason, config.by), problem


def _sentence(problem: Exception, home: Path) -> str:
    said = problem.message if isinstance(problem, FrazilError) else first_line(problem)
    return f"Dagster's storage in {home} cannot be used: {said}"
