"""Reset job: a stream's offsets reset as a Dagster run, or the plan of that."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.errors import FrazilError
from orchestration.jobs.runs import action_tags, run_config, tag_run
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

if TYPE_CHECKING:
    from jobs.operator.reset_plan import Counting, ResetPlan

JOB = "frazil_reset_offsets"
OP = "reset_offsets"
ACTION = "reset_offsets"


class ResetConfig(dg.Config):
    """Which offsets, and whether only to look."""

    stream: str = Field(description="The stream's id, as in its file. It has to be stopped.")
    to: str = Field(
        description="earliest, latest, a time such as 2026-01-31T08:00:00Z, or topic:partition=offset, several with "
        "commas. Offsets are next offsets, as everywhere in Kafka."
    )
    topics: list[str] = Field(
        default_factory=list, description="Only these topics, or single partitions as topic:3; all if none is named."
    )
    dry_run: bool = Field(default=True, description="Only show what it would do. Set it to false to do it.")
    reason: str = Field(default="asked in Dagster", description="Why; kept in the tables' stamps and as the run's tag.")
    by: str = Field(default="Dagster UI", description="Who asked for it.")


def reset_tags(config: ResetConfig) -> dict[str, str]:
    """The tags of a run that resets offsets, or shows what that would do."""
    return action_tags(ACTION, config.reason, config.by, stream=config.stream)


def reset_run_config(config: ResetConfig) -> dict[str, Any]:
    """The configuration of such a run."""
    return run_config(OP, config)


def perform_reset(deployment: Deployment, config: ResetConfig, on_count: "Counting" = lambda *_: None) -> "ResetPlan":
    """Move a stopped stream to other offsets, or find out what that would do.

    Args:
        on_count: Called with how far the counting of rows is.

    Raises:
        FrazilError: It cannot be done.
    """
    # Imported here and below: a code location that only loads should not wait for what Kafka and the catalog need.
    from jobs.kafka.metadata import KafkaLog
    from jobs.operator.reset import plan_reset, reset
    from jobs.operator.reset_request import reset_request

    spec, settings = deployment.stream(config.stream), deployment.prepared_settings()
    request = reset_request(config.to, tuple(config.topics))

    def connect() -> KafkaLog:
        return KafkaLog(settings.kafka)

    if config.dry_run:
        return plan_reset(spec, settings, connect, request, on_count=on_count)
    return reset(spec, settings, connect, request, config.by, config.reason, on_count=on_count)


def reset_metadata(plan: "ResetPlan", catalog: str, *, done: bool) -> dict[str, Any]:
    """A reset as Dagster shows it."""
    from orchestration.jobs.reset_report import reset_facts, reset_rows, reset_sentences

    facts = reset_facts(plan, catalog, done=done)
    metadata: dict[str, Any] = {
        "done": done and bool(plan.changed),
        "meaning": dg.MetadataValue.md("\n\n".join(reset_sentences(plan, catalog))),
        "before": dg.MetadataValue.json(facts["before"]),
        "after": dg.MetadataValue.json(facts["after"]),
        "offsets_skipped": plan.skipped,
        "offsets_read_again": plan.again,
    }
    if plan.moves:
        metadata["partitions"] = dg.MetadataValue.table([dg.TableRecord(row) for row in reset_rows(plan)])
    if plan.obstacle:
        metadata["not_now"] = str(plan.obstacle)
    for key in ("command", "undo", "note"):
        if facts[key]:
            metadata[key] = facts[key]
    return metadata


def reset_job_of(act: "Callable[[Deployment, ResetConfig], ResetPlan]") -> dg.JobDefinition:
    """The job `frazil_reset_offsets`.

    Args:
        act: Does it; who runs the job in its own process learns here what it came to.
    """

    @dg.op(name=OP)
    def reset_offsets_op(context: dg.OpExecutionContext, config: ResetConfig, deployment: DeploymentResource) -> None:
        """Move a stopped stream to other offsets, or show first what that would do.

        The plan is a table in the metadata: per partition from where to where, what is skipped or read again, and how
        many rows of that range the tables hold now.
        """
        from orchestration.jobs.reset_report import reset_sentences

        tag_run(context, reset_tags(config))
        try:
            plan = act(deployment.deployment(), config)
        except FrazilError as problem:
            raise failure(problem) from None
        catalog = deployment.settings().catalog.name
        for sentence in reset_sentences(plan, catalog):
            context.log.info(sentence)
        context.add_output_metadata(reset_metadata(plan, catalog, done=not config.dry_run))

    @dg.job(
        name=JOB,
        executor_def=dg.in_process_executor,
        # A retry would do again what an operator may have undone meanwhile.
        tags={"dagster/max_retries": "0"},
        description="Move a stopped stream to other offsets. It only shows what that would do until dry_run is false.",
    )
    def job() -> None:
        reset_offsets_op()

    return job


reset_offsets_job = reset_job_of(perform_reset)
