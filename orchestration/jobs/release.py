"""Release job: publishes a stream's quarantined rows as a Dagster run, or plans that."""

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.base.errors import FrazilError
from jobs.tables.commit.stamp.offsets import by_topic
from orchestration.jobs.runs import action_tags, tag_run
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from jobs.quality.publishing.gated import GateResult

JOB = "frazil_release"
OP = "release"
ACTION = "release"


class ReleaseConfig(dg.Config):
    """Configuration of a release: the stream, the reason, and whether to plan only."""

    stream: str = Field(description="The stream's id, as in its file. It may run meanwhile.")
    dry_run: bool = Field(default=True, description="Only report what would be published. Set it to false to do it.")
    reason: str = Field(default="asked in Dagster", description="Why; kept in the snapshot that main gets.")
    by: str = Field(default="Dagster UI", description="Author of the request; kept there, too.")


@dg.op(name=OP)
def release_op(
    context: dg.OpExecutionContext, config: ReleaseConfig, deployment: DeploymentResource, catalog: CatalogResource
) -> None:
    """Publish what is held at a stream's gate as it is, or tell what that would do.

    It may be terminated, and run again: what is held is published in one commit, or not at all.
    """
    # Imported here: a code location that only loads should not wait for what a release needs.
    from jobs.clients.catalog.translate import translate_errors
    from jobs.quality.publishing.gated import plan_release, refuse_without_gate, release

    tag_run(context, action_tags(ACTION, config.reason, config.by, stream=config.stream))
    try:
        spec, settings = deployment.stream(config.stream), deployment.settings()
        refuse_without_gate(spec)
        with translate_errors(settings, spec.stream), catalog.catalog() as connected:
            if config.dry_run:
                done = plan_release(spec, settings, connected)
            else:
                done = release(spec, settings, connected, config.by, config.reason)
    except FrazilError as problem:
        raise failure(problem) from None
    context.add_output_metadata(release_metadata(spec.stream, done, config))


def release_metadata(stream: str, done: "GateResult", config: ReleaseConfig) -> dict[str, Any]:
    """A release as Dagster shows it."""
    found, verdict, made = done.interval, done.verdict, done.snapshot_id is not None
    ranges = found.ranges if found else {}
    metadata: dict[str, Any] = {
        "done": made,
        "rows": found.rows if found else 0,
        "files": len(found.files) if found else 0,
        "branch": found.branch if found else "",
        "from": dg.MetadataValue.json(by_topic({p: range_.start for p, range_ in ranges.items()})),
        "to": dg.MetadataValue.json(by_topic({p: range_.end for p, range_ in ranges.items()})),
        "reasons": "\n".join(verdict.reasons if verdict else ()),
        "gate_generation": done.gate.generation,
        "by": config.by,
        "why": config.reason,
        "next": f"frazil publish {stream}, which judges what has landed since"
        if made
        else "launch it again with dry_run: false",
    }
    if made:
        # As text: a snapshot id exceeds the integers of JavaScript.
        metadata["snapshot_id"] = str(done.snapshot_id)
    return metadata


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    # A retry would do again what an operator may have ended; to run it again is safe, and a person's decision.
    tags={"dagster/max_retries": "0"},
    description="Publish quarantined rows as they are. It only reports what that would do until dry_run is false.",
)
def release_job() -> None:
    """Publish quarantined rows."""
    release_op()
