"""Dead letters in Dagster: counts for plots, a table of reasons and states, and the check of how many wait."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dagster as dg
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from assets import dagster_names
from assets.last_reported import is_driver_only, last_check_result, lasting
from assets.metadata import cell, row_count
from assets.stream_checks import CheckOutcome, check_result, evaluation, totals_of
from jobs.config.settings.settings import Settings
from jobs.config.stream.error_handling import DEFAULT_STOP, exceeds_ratio
from jobs.config.stream.models import StreamSpec
from jobs.tables.dead_letter_table.table import STATES
from jobs.tables.dead_letter_table.tally import (
    WAITING,
    DeadLetterTally,
    KnownFiles,
    tally_dead_letters,
)
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

LETTERS_WAITING = "letters_waiting"
REPLAY_WOULD_HELP = "replay_would_help"
LETTER_DESCRIPTIONS = {
    LETTERS_WAITING: (
        "No dead letter is exhausted (`parked`), none waits for a table that is or was suspended, and the share of "
        "failed records among all records read is within slo.dead_letter_ratio. Dead letters that are new, failed "
        "again or exhausted wait."
    ),
    REPLAY_WOULD_HELP: (
        "Dead letters of an earlier configuration would fail again under the present one. If a sample of them "
        "succeeds now, this warns and names the command."
    ),
}
DEFAULT_DEAD_LETTER_RATIO = 0.05
# Below this number of records, a high ratio may be chance.
SURE_RECORDS = 100
_SHOWN_REASONS = 20
# Shared by this process, which counts each data file once.
KNOWN_FILES = KnownFiles()

DeadLetterJudge = Callable[[Deployment, str, Callable[[], Catalog], Sequence[str]], Sequence[CheckOutcome]]


def allowed_ratio(spec: StreamSpec | None) -> float:
    """The largest ratio of dead letters that the check `letters_waiting` allows."""
    if spec is None:
        return DEFAULT_DEAD_LETTER_RATIO
    # The default of `stop_above` is far above a ratio that deserves a look, so it does not count.
    stop = spec.errors.stop_above if spec.errors.stop_above != DEFAULT_STOP else None
    return spec.slo.dead_letter_ratio or (stop and stop.ratio) or DEFAULT_DEAD_LETTER_RATIO


def tally_metadata(counted: DeadLetterTally) -> dict[str, Any]:
    """The tally of dead letters as metadata: all counts in every report, and the table of reasons and states."""
    told: dict[str, Any] = {f"dead_letters_{state}": count for state, count in counted.by_state.items()}
    told |= {"dead_letters_total": counted.total, "dead_letters_waiting": counted.waiting}
    if waiting := counted.waiting_for:
        told["dead_letters_of_parked_tables"] = dg.MetadataValue.json(waiting)
    if counted.unreadable:
        told["dead_letters_unreadable"] = counted.unreadable
    if counted.total:
        told["letters"] = dg.MetadataValue.md(tally_markdown(counted))
    return told


def tally_markdown(counted: DeadLetterTally) -> str:
    """Reasons by states as a table in Markdown; it holds no values of records and no messages."""
    rows = counted.table()
    states = [state for state in STATES if any(row[state] for row in rows.values())]
    lines = [f"| reason | {' | '.join(states)} | all |", f"|---|{'---:|' * (len(states) + 1)}"]
    shown = list(rows.items())
    if len(shown) > _SHOWN_REASONS:
        rest = [row for _, row in shown[_SHOWN_REASONS:]]
        others = {state: sum(row[state] for row in rest) for state in STATES}
        shown = [*shown[:_SHOWN_REASONS], (f"{len(rest)} others", others)]
    if len(rows) > 1:
        shown.append(("all", counted.by_state))
    for reason, row in shown:
        cells = [f"{row[state]:,}" for state in states]
        lines.append(f"| {cell(reason)[:80]} | {' | '.join(cells)} | {sum(row.values()):,} |")
    return "\n".join(lines)


def letters_waiting(spec: StreamSpec, counted: DeadLetterTally, read: int, at: float | None = None) -> CheckOutcome:
    """The outcome of the check whether too many dead letters wait.

    Args:
        read: Records that the stream has read since its first run.
        at: Time of the tally in seconds since 1970; None for now.
    """
    stream, parked, allowed = spec.stream, counted.by_state["parked"], allowed_ratio(spec)
    figures: dict[str, float | int | str] = {
        "dead_letters_waiting": counted.waiting,
        "dead_letters_parked": parked,
        "records_read": read,
        "allowed": allowed,
    }
    wrong: list[str] = []
    nexts: list[str] = []
    if counted.unreadable:
        wrong.append(f"{counted.unreadable:,} dead letters are in data files that cannot be read")
        nexts.append(f"frazil replay {stream} --dry-run, which names the files")
    apart = counted.waiting_for
    failed = counted.waiting - sum(apart.values())
    above = read > 0 and exceeds_ratio(failed, read, allowed, SURE_RECORDS)
    if read:
        figures["waiting_ratio"] = round(failed / read, 6)
    if above:
        wrong.append(
            f"{failed:,} dead letters wait, {failed / read:.2%} of the {read:,} records read since the stream's first "
            f"run; {allowed:.2%} are allowed"
        )
        nexts.append(f"frazil replay {stream} --dry-run")
    for table, count in apart.items():
        figures[f"waiting_for_{table}"] = count
        wrong.append(f"{count:,} dead letters wait for table {table}, which is or was suspended")
        nexts.append(f"frazil status {stream}, which shows whether it still is; then frazil replay {stream}")
    if parked:
        wrong.append(f"{parked:,} dead letters are exhausted: replays failed {spec.errors.replay.park_after} times")
        nexts.append(f"frazil letters {stream} --state parked")
    if wrong:
        code = f"waiting:{bool(counted.unreadable)}:{above}:{bool(parked)}"
        code += f":{','.join(apart)}" if apart else ""
        sentence = f"{'; '.join(wrong)}. Next: {nexts[0]}"
        return CheckOutcome(LETTERS_WAITING, False, sentence, code, warn=True, figures=figures, at=at)
    if not counted.waiting:
        return CheckOutcome(LETTERS_WAITING, True, "No dead letter waits.", "none", figures=figures, at=at)
    sentence = f"{counted.waiting:,} dead letters wait ({', '.join(WAITING[:2]).replace('_', ' ')}); none is exhausted."
    return CheckOutcome(LETTERS_WAITING, True, sentence, "fine", figures=figures, at=at)


def report_dead_letters(
    instance: dg.DagsterInstance, spec: StreamSpec, settings: Settings, dead: Table, sink: Table | None, **more: Any
) -> DeadLetterTally:
    """Report the tally of dead letters and its check to Dagster without a run, as the supervisor does.

    So Dagster shows the check as evaluated, whichever run materialized the asset.
    """
    counted = tally_dead_letters(dead, spec.stream, KNOWN_FILES)
    key = dagster_names.table_key(settings, spec.dead_letter_table)
    for event in tally_events(spec, key, counted, totals_of(sink, spec.stream).read, row_count(dead), more):
        instance.report_runless_asset_event(event)
    return counted


def report_dead_letter_check(
    instance: dg.DagsterInstance, spec: StreamSpec, key: dg.AssetKey, dead: Table, sink: Table | None
) -> None:
    """Report the check `letters_waiting` without a run, after a run has materialized the dead letters."""
    found = letters_waiting(spec, tally_dead_letters(dead, spec.stream, KNOWN_FILES), totals_of(sink, spec.stream).read)
    instance.report_runless_asset_event(evaluation(found, key))


def tally_events(
    spec: StreamSpec, key: dg.AssetKey, counted: DeadLetterTally, read: int, rows: int, more: dict[str, Any]
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Yield a tally of dead letters as a materialization, and the outcome of its check."""
    told: dict[str, Any] = {"dagster/row_count": rows} | tally_metadata(counted) | more
    tags: dict[str, str] = {}
    if counted.snapshot_id is not None:
        told["snapshot_id"] = str(counted.snapshot_id)
        tags = {"dagster/data_version": str(counted.snapshot_id)}
    yield dg.AssetMaterialization(key, metadata=told, tags=tags)
    yield evaluation(letters_waiting(spec, counted, read), key)


def dead_letter_checks(
    spec: StreamSpec, key: dg.AssetKey, table_key: dg.AssetKey, judge: DeadLetterJudge
) -> dg.AssetChecksDefinition:
    """The checks of a stream's dead letters for runs from the UI; the sensors report the same results.

    Args:
        judge: Evaluates the named checks on the present dead letters.
    """

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "letters_", 1),
        description="Counts the dead letters that wait, and tries a sample of them again.",
        specs=[dg.AssetCheckSpec(name, asset=key, description=text) for name, text in LETTER_DESCRIPTIONS.items()],
        can_subset=True,
    )
    @lasting
    def watch_letters(
        context: dg.AssetCheckExecutionContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> Iterator[dg.AssetCheckResult]:
        selected = [check.name for check in context.selected_asset_check_keys]
        if is_driver_only(context, spec, table_key):
            for name in selected:
                kept = last_check_result(context, key, name, f"frazil replay {spec.stream} --dry-run")
                if kept is not None:
                    yield kept
            return
        for verdict in judge(deployment.deployment(), spec.stream, catalog.quick, selected):
            yield check_result(verdict, key)

    return watch_letters
