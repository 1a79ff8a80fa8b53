"""What the command line does to streams, kept as runs of Dagster that this process carries out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg

from jobs.errors import FrazilError, first_line
from jobs.system.deadline import within
from orchestration.cli.dagster_instance import dagster_home, dagster_instance
from orchestration.jobs.runs import WORKER_TAG, this_worker
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

OPENING_SECONDS = 20.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where actions are kept as runs.

    Attributes:
        deployment: On whose streams they act.
        instance: Dagster's; None if it cannot be opened.
        problem: Why not.
    """

    deployment: Deployment
    instance: dg.DagsterInstance | None
    problem: str | None = None

    def run(
        self,
        job: dg.JobDefinition,
        config: Mapping[str, Any],
        tags: Mapping[str, str],
        outcome: ContextVar[list[T | BaseException] | None],
    ) -> tuple[T | None, str | None]:
        """Carry a job out here, and keep it as a run if possible.

        Args:
            job: Which.
            config: Of the run.
            tags: Of the run.
            outcome: In which its op leaves what it came to.

        Returns:
            What it came to, None if it did not come to its op; and why there is no run of it, None if there is one.

        Raises:
            FrazilError: It could not be done.
            KeyboardInterrupt: It was interrupted.
        """
        if self.instance is None:
            return None, self.problem
        problem, interrupted, home = None, False, dagster_home(self.deployment)
        told: list[T | BaseException] = []
        token, run_id = outcome.set(told), str(uuid.uuid4())
        try:
            result = job.execute_in_process(
                # Its log lines are for Dagster's UI.
                run_config={**config, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
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
            # Dagster's storage went away, or is busy; what was done is done.
            problem = _unusable(failure, self.deployment)
        finally:
            outcome.reset(token)
        came = told[0] if told else None
        if isinstance(came, dg.DagsterExecutionInterruptedError) or (came is None and interrupted):
            raise KeyboardInterrupt
        if isinstance(came, BaseException):
            raise came
        return came, problem if came is not None else problem or f"the run in {home} did not come to its step"


@contextmanager
def open_ledger(deployment: Deployment) -> Iterator[Ledger]:
    """Dagster's instance, or why there is none: a stream must be stoppable without it."""
    storage = f"Dagster's storage in {dagster_home(deployment)}"
    try:
        instance = within(OPENING_SECONDS, storage, lambda: dagster_instance(deployment))
    except Exception as problem:
        yield Ledger(deployment, None, _unusable(problem, deployment))
        return
    with instance:
        yield Ledger(deployment, instance)


def _unusable(problem: Exception, deployment: Deployment) -> str:
    said = problem.message if isinstance(problem, FrazilError) else first_line(problem)
    return f"Dagster's storage in {dagster_home(deployment)} cannot be used: {said}"
