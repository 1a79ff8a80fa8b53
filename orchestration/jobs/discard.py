"""Discard job: makes dead letters of a stream's quarantined rows as a Dagster run, or plans that."""

from typing import Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.base.errors import FrazilError
from orchestration.jobs.discard_report import discard_document
from orchestration.jobs.runs import action_tags, tag_run
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

JOB = "frazil_discard"
OP = "discard"
ACTION = "discard"


class DiscardConfig(dg.Config):
    """Configuration of a discard: the stream, the reason, and whether to plan only."""

    stream: str = Field(description="The stream's id, as in its file. It may run meanwhile.")
    through: int = Field(default=0, description="Only up to this snapshot of the branch; 0 is all quarantined rows.")
    without_kafka: bool = Field(default=False, description="Dead letters keep the rows as JSON; Kafka is not read.")
    dry_run: bool = Field(default=True, description="Only report what would be discarded. Set it to false to do it.")
    reason: str = Field(
        default="asked in Dagster", description="The reason; kept in the table's stamps and in the dead letters."
    )
    by: str = Field(default="Dagster UI", description="Author of the request; kept there, too.")


@dg.op(name=OP)
def discard_op(
    context: dg.OpExecutionContext, config: DiscardConfig, deployment: DeploymentResource, catalog: CatalogResource
) -> None:
    """Make dead letters of a stream's quarantined rows, or report the plan.

    It may be terminated, and run again: it finishes what was decided.
    """
    # Imported here: a code location that only loads should not wait for what a discard needs.
    from jobs.clients.catalog.translate import translate_errors
    from jobs.quality.publishing.discard_decision import plan_discard
    from jobs.quality.publishing.discarding import discard, without_records

    tag_run(context, action_tags(ACTION, config.reason, config.by, stream=config.stream))
    try:
        spec, settings = deployment.stream(config.stream), deployment.settings()
        through = config.through or None
        with translate_errors(settings, spec.stream), catalog.catalog() as connected:
            if config.dry_run:
                done = plan_discard(spec, settings, connected, config.by, config.reason, through)
            else:
                records = without_records if config.without_kafka else None
                done = discard(spec, settings, connected, config.by, config.reason, through=through, records=records)
    except FrazilError as problem:
        raise failure(problem) from None
    context.add_output_metadata(discard_metadata(discard_document(spec, done)))


def discard_metadata(document: dict[str, Any]) -> dict[str, Any]:
    """A discard as Dagster shows it."""
    metadata: dict[str, Any] = {
        name: document[name] for name in ("done", "rows", "letters", "letters_as_rows", "letters_masked", "by", "why")
    }
    metadata |= {"branch": document["branch"], "from": dg.MetadataValue.json(document["from"])}
    metadata |= {"to": dg.MetadataValue.json(document["to"]), "reasons": "\n".join(document["reasons"])}
    if document["snapshot_id"] is not None:
        # As text: a snapshot id exceeds the integers of JavaScript.
        metadata["snapshot_id"] = str(document["snapshot_id"])
    stream = document["stream"]
    metadata["next"] = (
        f"frazil publish {stream}; and, once it is corrected, frazil replay {stream} --reason discarded"
        if document["done"]
        else "launch it again with dry_run: false"
    )
    return metadata


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    # A retry would do again what an operator may have ended; to run it again is safe, and a person's decision.
    tags={"dagster/max_retries": "0"},
    description="Make dead letters of quarantined rows, and let main go on without them. It only reports what that "
    "would do until dry_run is false.",
)
def discard_job() -> None:
    """Make dead letters of quarantined rows."""
    discard_op()
