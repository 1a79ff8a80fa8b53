"""Checks of a running stream on its table: whether its driver lives, gets on, keeps its promises, and is configured."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from assets import names
from jobs.spec.models import StreamSpec
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

DESCRIPTIONS = {
    "driver_alive": "The stream is as it is wanted: a driver runs, or none is wanted.",
    "batch_not_stalled": "The driver gets on: no batch hangs, and records that wait are read.",
    "lag_within_slo": "The table is no further behind the topics than slo.lag_records and slo.lag_time allow.",
    "dead_letter_ratio": "No more of the newest records became dead letters than slo.dead_letter_ratio allows.",
    "configuration": "The stream's file is valid, and what runs is what it says.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check says of a stream.

    Attributes:
        name: One of `DESCRIPTIONS`.
        sentence: Why, in words; ends with the next command where there is one.
        code: The verdict without its figures: what has to differ to be news.
        warn: A failure that needs nobody now.
    """

    name: str
    passed: bool
    sentence: str
    code: str
    warn: bool = False
    figures: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def severity(self) -> dg.AssetCheckSeverity:
        """WARN where nobody has to get up for it."""
        return dg.AssetCheckSeverity.WARN if self.warn else dg.AssetCheckSeverity.ERROR


Judge = Callable[[Deployment, str], Sequence[Verdict]]


def evaluation(verdict: Verdict, key: dg.AssetKey) -> dg.AssetCheckEvaluation:
    """A verdict as an event that is reported without a run."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=verdict.name,
        passed=verdict.passed,
        severity=verdict.severity,
        description=verdict.sentence,
        metadata=dict(verdict.figures),
    )


def stream_checks(spec: StreamSpec, key: dg.AssetKey, judge: Judge) -> dg.AssetChecksDefinition:
    """The checks of a stream, as they are executed from the UI; the reconcile sensor reports the same by itself.

    Args:
        spec: The stream.
        key: Of its table.
        judge: Looks at the stream now, and says what each check says of it.
    """

    @dg.multi_asset_check(
        name=names.op_name(spec).replace("drain_", "watch_", 1),
        specs=[dg.AssetCheckSpec(name, asset=key, description=text) for name, text in DESCRIPTIONS.items()],
        can_subset=True,
    )
    def watch_stream(
        context: dg.AssetCheckExecutionContext, deployment: DeploymentResource
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {check.name for check in context.selected_asset_check_keys}
        for verdict in judge(deployment.deployment(), spec.stream):
            if verdict.name in selected:
                yield dg.AssetCheckResult(
                    passed=verdict.passed,
                    asset_key=key,
                    check_name=verdict.name,
                    severity=verdict.severity,
                    description=verdict.sentence,
                    metadata=dict(verdict.figures),
                )

    return watch_stream
