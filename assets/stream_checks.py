"""Asset checks of a stream: whether its driver runs, makes progress and meets its SLOs, and its records add up."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyiceberg.table import Table

from assets import dagster_names
from assets.last_reported import lasting
from assets.metadata import instant
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.stamp.stamp_fields import Counts
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.clients.kafka.metadata import KafkaLog

DESCRIPTIONS = {
    "driver_alive": "A driver runs, or the stream needs none. Warns while an operator has paused or stopped it.",
    "batch_not_stalled": "The driver gets on: no batch hangs, and records that wait are read.",
    "lag_within_slo": (
        "The table is no further behind the topics than slo.lag_records and slo.lag_time, or freshness.fail, allow. "
        "If none of them is set, it warns from 15 minutes beyond the trigger on. While the stream is halted, no "
        "record waits."
    ),
    "dead_letter_ratio": (
        "No more of the newest records became dead letters than slo.dead_letter_ratio allows, and the stream is not "
        "halted over records that failed."
    ),
    "unknown_fields": "No record has a key that neither the schema declares nor slo.unknown_fields names.",
    "configuration": "The stream's file is valid, and the driver runs by it.",
}
ADDS_UP = "adds_up"


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """Outcome of one check of a stream.

    Attributes:
        name: Name of the check.
        sentence: Reason in words; ends with the next command if there is one.
        code: The outcome without its figures. It is reported as news if the code differs from the last one.
        warn: Whether a failure is only a warning, which nobody has to handle at once.
        at: Time of the figures in seconds since 1970; None for now.
    """

    name: str
    passed: bool
    sentence: str
    code: str
    warn: bool = False
    figures: Mapping[str, float | int | str | dg.MarkdownMetadataValue] = field(default_factory=dict)
    at: float | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """The figures and their time."""
        return {**self.figures, "as_of": instant(time.time() if self.at is None else self.at)}

    @property
    def fix(self) -> str | None:
        """The next command at the end of the sentence; None if there is none."""
        return self.sentence.rpartition(" Next: ")[2] if " Next: " in self.sentence else None

    @property
    def severity(self) -> dg.AssetCheckSeverity:
        """WARN for outcomes that nobody has to handle at once."""
        return dg.AssetCheckSeverity.WARN if self.warn else dg.AssetCheckSeverity.ERROR


CheckEvaluator = Callable[[Deployment, str, Callable[[], "Catalog"], Callable[[], "KafkaLog"]], Sequence[CheckOutcome]]


def evaluation(outcome: CheckOutcome, key: dg.AssetKey) -> dg.AssetCheckEvaluation:
    """A check's outcome as an event that is reported without a run."""
    return dg.AssetCheckEvaluation(**_fields(outcome, key))


def check_result(outcome: CheckOutcome, key: dg.AssetKey) -> dg.AssetCheckResult:
    """A check's outcome as a run yields it."""
    return dg.AssetCheckResult(**_fields(outcome, key))


def _fields(outcome: CheckOutcome, key: dg.AssetKey) -> dict[str, Any]:
    return {
        "asset_key": key,
        "check_name": outcome.name,
        "passed": outcome.passed,
        "severity": outcome.severity,
        "description": outcome.sentence,
        "metadata": outcome.metadata,
    }


def totals_of(table: Table | None, stream: str) -> Counts:
    """The counts of all records since the stream's first run, from the newest stamp."""
    newest = history(as_written(table.metadata, stream), stream).newest if table is not None else None
    return newest.totals if newest else Counts()


def adds_up(stream: str, totals: Counts, run: Counts | None = None) -> CheckOutcome:
    """The outcome of the check that every record read is a row, a dead letter, a tombstone or filtered.

    Args:
        totals: Counts since the stream's first run, see `totals_of`.
        run: Counts of the reporting run; None if that run reads no records.
    """
    missing = [counts.read - _accounted_for(counts) for counts in (totals, run) if counts is not None]
    # The totals only rise, so their plots would show nothing. The missing records should plot as a flat line.
    counted = {"since the first run": totals, **({"in this run": run} if run is not None else {})}
    figures: dict[str, float | int | str | dg.MarkdownMetadataValue] = {
        "records_unaccounted_for": max(missing, key=abs),
        "totals": dg.MetadataValue.md(_totals_markdown(counted)),
    }
    since = f"since the stream's first run{' and in this one' if run is not None else ''}"
    if not any(missing):
        return CheckOutcome(
            ADDS_UP,
            True,
            f"Records read = landed + dead letters + tombstones + filtered, {since}.",
            "fine",
            figures=figures,
        )
    sentence = (
        f"Of {totals.read} records that were read since the stream's first run, {_accounted_for(totals)} are landed, "
        "dead letters or tombstones"
    )
    if run is not None:
        sentence += f"; of {run.read} in this run, {_accounted_for(run)} are"
    return CheckOutcome(ADDS_UP, False, f"{sentence}. Next: frazil status {stream}", f"off:{missing}", figures=figures)


def _totals_markdown(counted: Mapping[str, Counts]) -> str:
    parts = ("read", "landed", "dead", "tombstones", "filtered")
    lines = [f"| | {' | '.join(parts)} |", f"|---|{'---:|' * len(parts)}"]
    for when, counts in counted.items():
        lines.append(f"| {when} | {' | '.join(f'{getattr(counts, part):,}' for part in parts)} |")
    return "\n".join(lines)


def _accounted_for(counts: Counts) -> int:
    return counts.landed + counts.dead + counts.tombstones + counts.filtered


def stream_checks(spec: StreamSpec, key: dg.AssetKey, evaluate: CheckEvaluator) -> dg.AssetChecksDefinition:
    """The checks of a stream for runs from the UI; the reconcile sensor reports the same results.

    Args:
        evaluate: Evaluates all checks on the present stream.
    """

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "watch_", 1),
        description="Looks at the stream now: driver, progress, lag, dead letters, file.",
        specs=[dg.AssetCheckSpec(name, asset=key, description=text) for name, text in DESCRIPTIONS.items()],
        can_subset=True,
    )
    @lasting
    def watch_stream(
        context: dg.AssetCheckExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        kafka: KafkaResource,
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {check.name for check in context.selected_asset_check_keys}
        for outcome in evaluate(deployment.deployment(), spec.stream, catalog.quick, kafka.quick):
            if outcome.name in selected:
                yield check_result(outcome, key)

    return watch_stream
