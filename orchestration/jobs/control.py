"""Control job: every action on a stream as a short Dagster run, with who asked for it and why."""

import enum
from collections.abc import Callable
from typing import Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.base.errors import FrazilError
from jobs.streaming.supervision.control.lifecycle import ActionResult
from jobs.streaming.supervision.control.stream_control import StreamControl
from orchestration.jobs.runs import MAX_RUNTIME_TAG, action_tags, run_config, tag_run
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

JOB = "frazil_control"
OP = "control"
# Longer than the longest action takes: after it Dagster gives up a run whose worker is gone.
MAX_RUNTIME_SECONDS = 1200


class StreamAction(enum.Enum):
    """Action on a stream. The last four are the supervisor's: they keep the operator's desired state.

    Names and values are the same, since Dagster's run configuration holds the names.
    """

    start = "start"
    stop = "stop"
    pause = "pause"
    resume = "resume"
    restart = "restart"
    flush = "flush"
    roll = "roll"
    ensure_running = "ensure_running"
    end = "end"
    let_go = "let_go"


class ControlConfig(dg.Config):
    """Configuration of a control run: an action on a stream."""

    stream: str = Field(description="The stream's id, as in its file.")
    action: StreamAction = Field(description="What to do with it.")
    reason: str = Field(default="asked in Dagster", description="Why; kept as the run's tag and beside the stream.")
    by: str = Field(default="Dagster UI", description="Who asked for it.")
    request: int = Field(default=0, description="The supervisor's number of the request; 0 for a person's.")
    generation: str = Field(default="", description="The only generation that may be started; empty for any.")


def control_tags(config: ControlConfig) -> dict[str, str]:
    """The tags of a run that carries this action out."""
    return action_tags(config.action.value, config.reason, config.by, stream=config.stream, request=config.request)


def control_run_config(config: ControlConfig) -> dict[str, Any]:
    """The configuration of a run that carries this action out."""
    return run_config(OP, config)


def perform_control(deployment: Deployment, config: ControlConfig) -> ActionResult:
    """Carry a control action on a stream out.

    Raises:
        FrazilError: It cannot be done.
    """
    control = StreamControl(
        deployment.home, deployment.settings_file, config.stream, generation=config.generation or None
    )
    return control.perform(config.action.value, config.reason, config.by)


def control_job_of(act: Callable[[Deployment, ControlConfig], ActionResult]) -> dg.JobDefinition:
    """The job `frazil_control`.

    Args:
        act: Carries an action out; who runs the job in its own process learns here what it came to.
    """

    @dg.op(name=OP)
    def control_op(context: dg.OpExecutionContext, config: ControlConfig, deployment: DeploymentResource) -> None:
        """Start, stop, pause, resume, restart or flush a stream's driver, or roll a changed file out to it.

        It ends once the driver drives, or has ended. The driver is a process of its own: neither this run's end nor its
        termination touches it, unless it has not given a first heartbeat.
        """
        tag_run(context, control_tags(config))
        try:
            done = act(deployment.deployment(), config)
        except FrazilError as problem:
            raise failure(problem) from None
        context.log.info(done.sentence)
        # Imported here: a command knows its actions without the modules of tables.
        from assets.metadata import driver_metadata

        context.add_output_metadata({"result": done.sentence, **driver_metadata(done.heartbeat)})

    @dg.job(
        name=JOB,
        executor_def=dg.in_process_executor,
        tags={
            # A retry would do again what an operator may have undone meanwhile; the supervisor asks again if it has to.
            "dagster/max_retries": "0",
            MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS),
        },
        description="One action on one stream, as the supervisor and the command line ask for it. By hand, "
        "frazil_start, frazil_pause, frazil_resume, frazil_restart, frazil_flush and frazil_stop do the same, and "
        "know the streams.",
    )
    def job() -> None:
        control_op()

    return job


control_job = control_job_of(perform_control)
