"""Judge of a gated stream: an interval that is about to be published is held against the stream's contract."""

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
    """Judges intervals by the critical expectations of the contract; what else fails is told, and holds nothing.

    Attributes:
        spark: Starts Spark, or gives the session that runs; asked only where it is needed.
        by: Who publishes.
        checked: What was checked last.
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
        """Changes with the contract."""
        return contract_digest(contract_of(self.spec, self.spec.targets[0]))

    def __call__(self, interval: Interval) -> Verdict:
        """Judge exactly the interval's rows.

        Raises:
            FrazilError: They cannot be read, or Great Expectations is not installed.
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
    """What a check of an interval says of its publication: one critical expectation that did not pass holds it."""
    critical = [each for each in check.failed if each.severity == "critical"]
    unevaluated = bool(critical) and all(each.problem is not None for each in critical)
    reasons = tuple(map(failure_text, critical or check.failed))
    return Verdict(not critical, reasons, judged_by, check.rows, unevaluated)


def failure_text(outcome: ExpectationOutcome) -> str:
    """Why an expectation did not pass, without a value of any row: it is kept in the table's properties."""
    if outcome.problem is not None:
        return f"{outcome.name} could not be evaluated: {outcome.problem}"
    named = f"{outcome.name} ({outcome.type})"
    if outcome.unexpected is not None and outcome.elements:
        return f"{named}: {outcome.unexpected:,} of {outcome.elements:,} rows are not accepted"
    return f"{named}: not as expected"
