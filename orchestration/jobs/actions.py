"""Action jobs: what an operator does to streams in Dagster's launchpad: start, pause, resume, restart, flush, stop.

`frazil_control` does the same for the supervisor and the command line. It takes any stream's name, also of one that the
code location has not loaded yet, or does not know any more; here the streams are those that it has loaded, so that the
launchpad offers them, and refuses a misspelt one before anything is launched.
"""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import dagster as dg

from assets.failures import failure
from assets.metadata import driver_metadata
from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.control.stream_control import StreamControl
from orchestration.jobs.control import StreamAction
from orchestration.jobs.runs import ACTION_TAG, MAX_RUNTIME_TAG, action_tags, tag_run
from resources.deployment_resource import DeploymentResource

BY = "Dagster UI"
# One stream after the other, each as long as its batch at hand takes.
MAX_RUNTIME_SECONDS = 3600
ACTIONS = {
    StreamAction.start: "Run streams by their files, also after they were stopped, paused or halted.",
    StreamAction.pause: "The drivers stay, warm, and read nothing.",
    StreamAction.resume: "Paused or stopped streams go on.",
    StreamAction.restart: "End the drivers after their batch and start others. A paused stream stays paused.",
    StreamAction.flush: "Land the topics' records now, without the trigger's pause; ends once they have landed.",
    StreamAction.stop: "End the drivers after their batch; none is started until somebody starts or resumes them.",
}


def action_jobs(specs: Sequence[StreamSpec]) -> list[dg.JobDefinition]:
    """A job for each action, whose launchpad opens filled in."""
    values = [dg.EnumValue(spec.stream, description=spec.description or spec.table.name) for spec in specs]
    # Dagster keeps one type per name in a process, so the name says which streams are meant; one of nothing is none.
    which = crc32(" ".join(sorted(spec.stream for spec in specs)).encode())
    stream = dg.Enum(f"KnownStream_{which:08x}", values) if values else str
    only = [spec.stream for spec in specs] if len(specs) == 1 else []
    return [_action_job(action, text, stream, only) for action, text in ACTIONS.items()]


def opened_with(job: dg.JobDefinition, op: str, config: dict[str, Any]) -> dg.JobDefinition:
    """The job of an action, whose launchpad opens with these fields instead of every default of every resource.

    Args:
        config: The configuration to open with; has to be valid as it stands.
    """
    return job.graph.to_job(
        name=job.name,
        description=job.description,
        executor_def=dg.in_process_executor,
        tags=dict(job.tags),
        config={"ops": {op: {"config": config}}},
    )


def action_job_name(action: StreamAction) -> str:
    """Name of the job of an action."""
    return f"frazil_{action.value}"


def _action_job(action: StreamAction, text: str, stream: Any, only: list[str]) -> dg.JobDefinition:
    @dg.op(
        name=action.value,
        description=f"{text} Each may be repeated; one stream's trouble keeps no other from its turn.",
        config_schema={
            "streams": dg.Field(dg.Array(stream), default_value=only, description="Which; at least one."),
            "reason": dg.Field(str, default_value="asked in Dagster", description="Why; kept beside the stream."),
        },
    )
    def act(context: dg.OpExecutionContext, deployment: DeploymentResource) -> None:
        streams, reason = list(dict.fromkeys(context.op_config["streams"])), context.op_config["reason"]
        if not streams:
            raise failure(FrazilError("No stream is named.", fix=f"name one under ops.{action.value}.config.streams"))
        # The supervisor leaves a stream alone while a run with its tag is under way.
        only_one = streams[0] if len(streams) == 1 else ""
        tag_run(context, action_tags(action.value, reason, BY, stream=only_one))
        _act_on_each(context, deployment, action, streams, reason)

    @dg.job(
        name=action_job_name(action),
        executor_def=dg.in_process_executor,
        tags={"dagster/max_retries": "0", MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS), ACTION_TAG: action.value},
        description=f"{text} As `frazil {action.value}`.",
        # The launchpad opens with this instead of every default of every resource.
        config={"ops": {action.value: {"config": {"streams": only, "reason": "asked in Dagster"}}}},
    )
    def job() -> None:
        act()

    return job


def _act_on_each(
    context: dg.OpExecutionContext,
    deployment: DeploymentResource,
    action: StreamAction,
    streams: Sequence[str],
    reason: str,
) -> None:
    paths = deployment.deployment()
    metadata: dict[str, Any] = {}
    problems: list[FrazilError] = []
    for stream in streams:
        try:
            done = StreamControl(paths.home, paths.settings_file, stream).perform(action.value, reason, BY)
        except FrazilError as problem:
            context.log.error(str(problem))
            problems.append(problem)
            continue
        context.log.info(done.sentence)
        metadata[f"result of {stream}"] = done.sentence
        if len(streams) == 1:
            metadata |= driver_metadata(done.heartbeat)
    if problems:
        ended = failure(problems[0])
        also = f" {len(problems) - 1} more could not be done either." if len(problems) > 1 else ""
        raise dg.Failure(f"{ended.description}{also}", {**ended.metadata, **metadata}, allow_retries=False)
    context.add_output_metadata(metadata)
