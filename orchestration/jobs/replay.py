"""Replay job of Dagster: the dry run of a replay or, when asked for, the replay itself, with its metadata."""

import time
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets.failures import failure
from assets.metadata import counts_table
from jobs.base.errors import FrazilError
from jobs.dead_letters.replay.result import ReplayProgress, ReplayResult
from orchestration.jobs.runs import action_tags, run_config, tag_run
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.config.settings.settings import Settings
    from jobs.config.stream.models import StreamSpec
    from jobs.dead_letters.replay.request import ReplayRequest
    from jobs.tables.dead_letter_table.selection import Selection


JOB = "frazil_replay"
OP = "replay"
ACTION = "replay"
CONFIG_TAG = "frazil/config_hash"
_PROGRESS_SECONDS = 5.0


class ReplayConfig(dg.Config):
    """Configuration of a replay: a selection of dead letters. All fields must match, and of a list any value."""

    stream: str = Field(description="The stream's id, as in its file. It may run meanwhile.")
    reasons: list[str] = Field(default_factory=list, description="Dead letters with these values of error_class.")
    stages: list[str] = Field(default_factory=list, description="Dead letters that failed in these stages.")
    fields: list[str] = Field(
        default_factory=list, description="Dead letters that failed at these fields, such as $.a."
    )
    since: str = Field(default="", description="First seen then or later, such as 2026-01-31T08:00:00Z.")
    until: str = Field(default="", description="First seen before.")
    offsets: list[str] = Field(default_factory=list, description="TOPIC, TOPIC:3 or TOPIC:3:17-42.")
    states: list[str] = Field(
        default_factory=list, description="In these states; without any, new and failed_again. `all` is every state."
    )
    where: str = Field(default="", description="A predicate over the dead-letter table's columns, in SQL.")
    limit: int = Field(default=0, ge=0, description="At most so many dead letters; 0 is no limit.")
    correction: str = Field(
        default="", description="YAML laid over the stream's file for this replay only; kept in the dead letters."
    )
    fewer_columns: bool = Field(
        default=False, description="Let the correction leave out columns of the stream's file: they are null then."
    )
    dry_run: bool = Field(default=False, description="Only report what would come back, and change nothing.")
    rate: float = Field(
        default=0.0, ge=0, description="Dead letters per second at most; 0 for the value of the stream's file."
    )
    reason: str = Field(default="asked in Dagster", description="Why; kept as the run's tag.")
    by: str = Field(default="Dagster UI", description="Author of the request; kept in the dead letters.")


def replay_tags(config: ReplayConfig) -> dict[str, str]:
    """The tags of a run that replays letters, or plans that."""
    return action_tags(ACTION, config.reason, config.by, stream=config.stream)


def replay_run_config(config: ReplayConfig) -> dict[str, Any]:
    """The configuration of such a run."""
    return run_config(OP, config)


@dg.op(name=OP)
def replay_op(
    context: dg.OpExecutionContext, config: ReplayConfig, deployment: DeploymentResource, catalog: CatalogResource
) -> None:
    """Run the selected letters through the stream's pipeline as it is now, or tell what would come back.

    It may be terminated, and run again: every record lands once.
    """
    tag_run(context, replay_tags(config))
    try:
        spec, settings = deployment.stream(config.stream), deployment.settings()
        result = _replayed(context, config, deployment, catalog, spec, settings)
    except FrazilError as problem:
        raise failure(problem) from None
    for sentence in replay_sentences(result):
        context.log.info(sentence)
    metadata = replay_metadata(result)
    if result.unreadable:
        # As `frazil replay` ends with status 1: the readable letters have come back, and somebody has to look at the
        # rest.
        ended = FrazilError(
            " ".join(result.problems), fix=f"frazil replay {spec.stream} --dry-run, once it is restored"
        )
        failed = failure(ended)
        raise dg.Failure(failed.description, {**failed.metadata, **metadata}, allow_retries=False)
    context.add_output_metadata(metadata)


def _replayed(
    context: dg.OpExecutionContext,
    config: ReplayConfig,
    deployment: DeploymentResource,
    connection: CatalogResource,
    spec: "StreamSpec",
    settings: "Settings",
) -> ReplayResult:
    # Imported here: a code location that only loads should not wait for what a replay needs.
    from jobs.clients.catalog.translate import translate_errors
    from jobs.config.settings.correction import parse_correction
    from jobs.dead_letters.replay.request import ReplayRequest
    from jobs.dead_letters.replay.run import dry_run, replay
    from jobs.streaming.driver.context.writer_schemas import schema_lookup

    correction = None
    if config.correction.strip():
        correction = parse_correction(deployment.deployment().file_of(spec.stream), config.correction)
        context.log.info(f"with the correction:\n{correction.text}")
    given = (replay_selection(config), correction, config.rate or None, config.by, context.run_id)
    request = ReplayRequest(*given, fewer_columns=config.fewer_columns)
    progress = _ProgressLog(context)
    with translate_errors(settings, spec.stream), connection.catalog() as catalog:
        if config.dry_run:
            schemas = schema_lookup(request.corrected(spec), settings)
            return dry_run(spec, catalog, request, schemas=schemas, on_progress=progress)
        try:
            return replay(spec, settings, catalog, request, on_progress=progress)
        finally:
            _report(context, catalog, spec, deployment, connection, request)


def replay_selection(config: ReplayConfig) -> "Selection":
    """The letters that a run of the replay job selects.

    Raises:
        SelectionError: One of its fields means nothing.
    """
    from jobs.tables.dead_letter_table.selection import parse_selection

    return parse_selection(
        reasons=config.reasons,
        stages=config.stages,
        fields=config.fields,
        since=config.since if config.since.strip() else None,
        until=config.until if config.until.strip() else None,
        offsets=config.offsets,
        states=config.states,
        where=config.where.strip() or None,
        limit=config.limit or None,
    )


class _ProgressLog:
    """The progress of a replay in the run's log, every few seconds at most."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._context: dg.OpExecutionContext = context
        self._began: float = time.monotonic()
        self._last: float = float("-inf")

    def __call__(self, progress: ReplayProgress) -> None:
        now = time.monotonic()
        if now - self._last < _PROGRESS_SECONDS and progress.done < progress.total:
            return
        self._last = now
        rate = progress.done / max(now - self._began, 1e-3)
        self._context.log.info(
            f"{progress.done:,} of {progress.total:,} dead letters; {progress.replayed:,} came back, "
            f"{progress.failed:,} failed again; {rate:,.0f} per second"
        )


def _report(
    context: dg.OpExecutionContext,
    catalog: "Catalog",
    spec: "StreamSpec",
    deployment: DeploymentResource,
    connection: CatalogResource,
    request: "ReplayRequest",
) -> None:
    """Report the letters; also after a failed replay, whose first batches may have landed."""
    from assets.dead_letters import report_dead_letters
    from jobs.tables.commit.history.branch import stream_table
    from orchestration.reconcile.state_metadata import current_state_metadata

    try:
        dead, sink = (stream_table(catalog, spec, name) for name in (spec.dead_letter_table, spec.table.name))
        told = current_state_metadata(deployment.deployment(), spec.stream, connection.quick) | {
            "run_id": request.run_id or ""
        }
        report_dead_letters(context.instance, spec, deployment.settings(), dead, sink, **told)
    except Exception as problem:
        # The replay matters more than its report, which the supervisor makes as well.
        context.log.warning(f"the states of the dead letters could not be reported: {problem}")


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    # A retry would do again what an operator may have ended; to run it again is safe, and a person's decision.
    tags={"dagster/max_retries": "0"},
    description="Bring dead letters of a stream back, each record once. With dry_run it only reports what would come "
    "back.",
)
def replay_job() -> None:
    """Bring dead letters of a stream back."""
    replay_op()


def replay_sentences(result: ReplayResult) -> list[str]:
    """The result of a replay, and the next step."""
    if not result.selected and not result.unreadable:
        return [result.sentence]
    return [result.sentence, *result.details]


def replay_metadata(result: ReplayResult) -> dict[str, Any]:
    """A replay's result; numbers count letters, and each is always there, so that they plot."""
    metadata: dict[str, Any] = {
        "dry_run": result.dry_run,
        "result": result.sentence,
        "letters_selected": result.selected,
        "letters_landed": result.replayed,
        "letters_standing": result.standing,
        "letters_failed_again": result.failed_again,
        "letters_parked": result.parked,
        "letters_unreadable": result.unreadable,
        "duration_s": round(result.seconds, 3),
        "letters_per_second": round(result.selected / result.seconds) if result.seconds else 0,
    }
    if result.replay:
        metadata["replay"] = result.replay
    if result.null_columns:
        metadata["null_columns"] = ", ".join(result.null_columns)
    if result.unknown_fields:
        metadata["unknown_fields"] = counts_table("field", result.unknown_fields)
    if result.reasons:
        metadata["failed_by_reason"] = dg.MetadataValue.table([dg.TableRecord(row) for row in _rows(result)])
    if result.snapshots:
        # As text: a snapshot id exceeds the integers of JavaScript.
        metadata["snapshot_id"] = str(result.snapshots[-1])
        metadata["snapshots"] = len(result.snapshots)
    if result.correction:
        metadata["correction"] = dg.MetadataValue.md(f"```yaml\n{result.correction.rstrip()}\n```")
    if result.problems:
        metadata["problems"] = "\n".join(result.problems)
    if result.dry_run and result.replayed:
        metadata["next"] = "launch it again with dry_run: false"
    elif result.failed:
        metadata["next"] = f"frazil letters {result.stream}"
    return metadata


def _rows(result: ReplayResult) -> list[dict[str, Any]]:
    return [
        {"reason": each.error_class, "stage": each.stage, "letters": each.count, "such_as": each.place}
        for each in result.reasons
    ]
