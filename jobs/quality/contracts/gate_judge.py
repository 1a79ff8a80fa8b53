"""Audit of a write-audit-publish stream: checks its unpublished snapshots against its contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.contracts.check import Check, Progress, contract_of
from jobs.quality.contracts.check_result import TableCheck, contract_digest
from jobs.quality.contracts.check_rows import EngineName
from jobs.quality.contracts.outcome import ExpectationOutcome
from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.interval import Interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class ContractJudge:
    """Judges unpublished snapshots by the contract's critical expectations; other failures are only reported.

    Attributes:
        spark: Starts Spark, or returns the running session; called only if it is needed.
        by: Author of the publication.
        checked: Result of the last check.
    """

    spec: StreamSpec
    settings: Settings
    catalog: Catalog
    spark: Callable[[], SparkSession]
    engine: EngineName | None = None
    by: str = "unknown"
    on_progress: Progress = lambda _: None
    checked: TableCheck | None = field(default=None, init=False)

    @property
    def judged_by(self) -> str:
        """Digest that changes with the contract."""
        return contract_digest(contract_of(self.spec, self.spec.targets[0]))

    def __call__(self, interval: Interval) -> Verdict:
        """Judge exactly the rows of the unpublished snapshots.

        Raises:
            FrazilError: The rows cannot be read, or Great Expectations is not installed.
        """
        check = Check(
            spec=self.spec,
            settings=self.settings,
            catalog=self.catalog,
            spark=self.spark,
            engine=self.engine,
            record=False,
            by=self.by,
            on_progress=self.on_progress,
        )
        target = self.spec.targets[0]
        table = self.catalog.load_table(target.name)
        self.checked = check.run_on(target, table, interval.files, interval.head)
        return verdict_of(self.checked, self.judged_by)


def verdict_of(check: TableCheck, judged_by: str) -> Verdict:
    """Verdict of a check on the publication: one critical expectation that did not pass quarantines the snapshots."""
    critical = [each for each in check.failed if each.severity == "critical"]
    unevaluated = bool(critical) and all(each.problem is not None for each in critical)
    reasons = tuple(map(failure_text, critical or check.failed))
    return Verdict(not critical, reasons, judged_by, check.rows, unevaluated)


def failure_text(outcome: ExpectationOutcome) -> str:
    """Reason why an expectation did not pass, without values of rows: it is stored in the table's properties."""
    if outcome.problem is not None:
        return f"{outcome.name} could not be evaluated: {outcome.problem}"
    named = f"{outcome.name} ({outcome.type})"
    if outcome.unexpected is not None and outcome.elements:
        return f"{named}: {outcome.unexpected:,} of {outcome.elements:,} rows are not accepted"
    return f"{named}: not as expected"
