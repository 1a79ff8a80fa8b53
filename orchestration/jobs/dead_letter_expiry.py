"""Deleting dead letters by age, each night, for the streams whose files say how long letters are kept."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.base.errors import FrazilError
from orchestration.jobs.runs import ACTION_TAG, BY_TAG
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.config.stream.models import StreamSpec

JOB = "frazil_expire_letters"
OP = "expire_letters"
SCHEDULE = "frazil_expire_letters_daily"
ACTION = "expire_letters"
# Once a day: letters are deleted by whole days (UTC).
CRON = "17 3 * * *"


class ExpireConfig(dg.Config):
    """Configuration of the expiry of dead letters: the streams, and whether to plan only."""

    streams: list[str] = Field(
        default_factory=list, description="Only these streams; without any, all that set errors.dead_letters.keep."
    )
    dry_run: bool = Field(default=False, description="Only report what would be deleted.")


def streams_with_expiry(specs: "Sequence[StreamSpec]") -> "list[StreamSpec]":
    """The streams whose files say how long dead letters are kept. Two streams never share a table of letters."""
    return [spec for spec in specs if spec.errors.keep is not None]


@dg.op(name=OP)
def expire_dead_letters_op(
    context: dg.OpExecutionContext, config: ExpireConfig, deployment: DeploymentResource, catalog: CatalogResource
) -> None:
    """Delete letters that are older than `errors.dead_letters.keep`, by whole days, while the streams run."""
    # Imported here: a code location that only loads should not wait for it.
    from jobs.clients.catalog.translate import translate_errors
    from jobs.dead_letters.expiry.dead_letter_expiry import no_retention_error

    problems: list[FrazilError] = []
    rows: list[dict[str, Any]] = []
    try:
        settings = deployment.settings()
        specs, errors = deployment.deployment().streams()
        for name in sorted(set(config.streams) - {spec.stream for spec in streams_with_expiry(specs)}):
            raise no_retention_error(deployment.stream(name))
        for error in errors:
            context.log.warning(f"dead letters of a stream whose file cannot be read stay: {error}")
        with catalog.catalog() as connected:
            for spec in streams_with_expiry(specs):
                if config.streams and spec.stream not in config.streams:
                    continue
                try:
                    with translate_errors(settings, spec.stream):
                        row = _expired(context, connected, spec, deployment, catalog, dry_run=config.dry_run)
                except FrazilError as problem:
                    # One stream's trouble is none of the others'.
                    context.log.error(str(problem))
                    problems.append(problem)
                else:
                    rows += [row] if row else []
    except FrazilError as problem:
        raise failure(problem) from None
    metadata: dict[str, Any] = {
        "dry_run": config.dry_run,
        "letters_expired": sum(row["letters"] for row in rows),
        "letters_never_replayed": sum(row["never_replayed"] for row in rows),
    }
    if rows:
        metadata["tables"] = dg.MetadataValue.table([dg.TableRecord(row) for row in rows])
    else:
        context.log.info("nothing to do: no stream with a dead-letter table sets errors.dead_letters.keep")
    if problems:
        told = failure(problems[0])
        raise dg.Failure(told.description, {**metadata, **told.metadata}, allow_retries=False)
    context.add_output_metadata(metadata)


def _expired(
    context: dg.OpExecutionContext,
    catalog: "Catalog",
    spec: "StreamSpec",
    deployment: DeploymentResource,
    connection: CatalogResource,
    *,
    dry_run: bool,
) -> dict[str, Any] | None:
    """Delete a stream's old dead letters, and report the others; None if it has no dead-letter table yet."""
    from assets.dead_letters import report_dead_letters
    from jobs.dead_letters.expiry.dead_letter_expiry import expire_stream
    from jobs.tables.commit.history.branch import stream_table
    from orchestration.reconcile.state_metadata import current_state_metadata

    settings = deployment.settings()
    done = expire_stream(spec, settings, catalog, dry_run=dry_run)
    if done is None:
        return None
    found = done.expired
    first, *others = done.sentences(spec, dry_run=dry_run)
    context.log.info(first)
    for sentence in others:
        context.log.warning(sentence)
    if found.snapshot_id is not None:
        sink = stream_table(catalog, spec, spec.table.name) if catalog.table_exists(spec.table.name) else None
        told = current_state_metadata(deployment.deployment(), spec.stream, connection.quick)
        told |= {"dead_letters_expired": found.letters, "run_id": context.run_id}
        report_dead_letters(context.instance, spec, settings, done.table.refresh(), sink, **told)
    return {
        "stream": spec.stream,
        "table": spec.dead_letter_table,
        "before": found.before.isoformat(),
        "letters": found.letters,
        "never_replayed": found.never_replayed,
        "files": found.files,
        "held_back": found.held_back,
    }


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    # A failed deletion is tried again the next night.
    tags={"dagster/max_retries": "0", ACTION_TAG: ACTION},
    description="Delete dead letters that are older than errors.dead_letters.keep of their streams.",
)
def expire_dead_letters_job() -> None:
    """Delete dead letters by age."""
    expire_dead_letters_op()


def expire_schedule() -> dg.ScheduleDefinition:
    """The schedule; it only reads files, and asks for a run where a stream says how long letters are kept."""

    @dg.schedule(
        name=SCHEDULE,
        job=expire_dead_letters_job,
        cron_schedule=CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Deletes, each night, dead letters that are older than errors.dead_letters.keep of their "
        "streams. Streams that do not set it keep their dead letters for ever.",
    )
    def frazil_expire_letters(
        context: dg.ScheduleEvaluationContext, deployment: DeploymentResource
    ) -> dg.RunRequest | dg.SkipReason:
        specs, _ = deployment.deployment().streams()
        if not streams_with_expiry(specs):
            return dg.SkipReason("No stream sets errors.dead_letters.keep.")
        day = context.scheduled_execution_time.date().isoformat()
        return dg.RunRequest(run_key=f"expire:{day}", tags={ACTION_TAG: ACTION, BY_TAG: "schedule"})

    return frazil_expire_letters
