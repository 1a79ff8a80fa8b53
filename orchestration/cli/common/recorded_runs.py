"""Recorded runs: actions of the command line, carried out by this process and kept as runs of Dagster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.deadline import within
from orchestration.cli.common.dagster_instance import dagster_home, dagster_instance
from orchestration.jobs.runs import WORKER_TAG, this_worker
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

OPENING_SECONDS = 60.0
T = TypeVar("T")
ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True)
class RunRecorder:
    """Recorder of actions as runs of Dagster.

    Attributes:
        deployment: The deployment with the streams.
        instance: Dagster's instance; None if it cannot be opened.
        problem: Reason why the instance cannot be opened.
    """

    deployment: Deployment
    instance: dg.DagsterInstance | None
    problem: str | None = None

    def run(
        self,
        job_of: Callable[[Callable[[Deployment, ConfigT], T]], dg.JobDefinition],
        act: Callable[[Deployment, ConfigT], T],
        config: ConfigT,
        run_config: Mapping[str, Any],
        tags: Mapping[str, str],
    ) -> tuple[T, str | None]:
        """Carry an action out here, and keep it as a run if possible.

        Args:
            job_of: The job whose op carries out what it is given.
            config: Configuration of the action; `run_config` and `tags` are those of the run.

        Returns:
            Result of the action, and the reason why Dagster has no run of it; None if it has one.

        Raises:
            FrazilError: The action failed.
            KeyboardInterrupt: The action was interrupted.
        """
        if self.instance is None:
            return act(self.deployment, config), self.problem
        came: list[T | BaseException] = []

        def recorded(deployment: Deployment, given: ConfigT) -> T:
            try:
                done = act(deployment, given)
            except BaseException as problem:
                # An interrupt is among it, since Dagster keeps that to itself.
                came.append(problem)
                raise
            came.append(done)
            return done

        problem, interrupted, run_id = None, False, str(uuid.uuid4())
        try:
            result = job_of(recorded).execute_in_process(
                # Its log lines are for Dagster's UI.
                run_config={**run_config, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                instance=self.instance,
                run_id=run_id,
                # From the first moment on: a run that is killed before its step must not hold its stream up.
                tags={**tags, WORKER_TAG: this_worker(run_id)},
                resources={"deployment": DeploymentResource.of(self.deployment)},
                raise_on_error=False,
            )
            interrupted = any("interrupted" in (event.message or "") for event in result.all_events)
        except dg.DagsterExecutionInterruptedError:
            interrupted = True
        except Exception as failure:
            # Dagster's storage is gone or busy; the action itself is done.
            problem = _unusable(failure, self.deployment)
        if not came:
            if interrupted:
                raise KeyboardInterrupt
            home = dagster_home(self.deployment)
            return act(self.deployment, config), problem or f"the run in {home} did not come to its step"
        if isinstance(came[0], dg.DagsterExecutionInterruptedError):
            raise KeyboardInterrupt
        if isinstance(came[0], BaseException):
            raise came[0]
        return came[0], problem


@contextmanager
def open_recorder(deployment: Deployment) -> Iterator[RunRecorder]:
    """Dagster's instance, or why there is none: a stream must be stoppable without it."""
    storage = f"Dagster's storage in {dagster_home(deployment)}"
    try:
        instance = within(OPENING_SECONDS, storage, lambda: dagster_instance(deployment))
    except Exception as problem:
        yield RunRecorder(deployment, None, _unusable(problem, deployment))
        return
    with instance:
        yield RunRecorder(deployment, instance)


def _unusable(problem: Exception, deployment: Deployment) -> str:
    said = problem.message if isinstance(problem, FrazilError) else first_line(problem)
    return f"Dagster's storage in {dagster_home(deployment)} cannot be used: {said}"
