"""Evaluation of a contract: from rows and expectations to an outcome for each expectation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.config.contract.contract import Expectation
from jobs.config.contract.contract_columns import NotEvaluable, SeenColumn, find_column
from jobs.config.contract.contract_plan import SCHEMA, PlannedExpectation, planned
from jobs.config.contract.expectation_catalogue import KEYS_TO_BE_UNIQUE, OWN
from jobs.config.documents.units import parse_duration
from jobs.quality.contracts.gx import (
    KEY,
    Batch,
    error_of,
    exact_expectations,
    found_metrics,
)
from jobs.quality.contracts.outcome import (
    MOST_SAMPLES,
    ExpectationOutcome,
    Hidden,
    OwnResult,
    Sample,
    elements,
    index_list,
    observed,
    one_line,
    outcome,
    plain,
    unexpected_rows,
)
from jobs.quality.contracts.row_filter import row_filter
from jobs.quality.contracts.seen_rows import (
    ANY,
    ArrowRows,
    Rows,
    SparkRows,
)
from jobs.quality.contracts.unavailable import is_unavailable
from jobs.quality.contracts.unique_keys import EarlierKeys, unique_keys
from jobs.quality.contracts.usual_volume import (
    GRACE,
    PAST,
    Extent,
    VolumeBounds,
    usual_volume,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Context of an evaluation beside the rows.

    Attributes:
        coordinates: Columns of the records' coordinates, by the table's names; those that the rows lack are left out of
            samples.
        masked: Paths of columns whose values must not be shown, as in ``Mask.paths``: a column hides all within it.
        earlier_keys: Keys of the table beside the rows. None: the rows are only compared with each other, and the
            outcome says so.
        past_volumes: Function for rows per hour of the table, without the evaluated rows. It takes the column of the
            time (None: Kafka's timestamp), and the first and the last hour, and returns counts by the start of the hour
            in UTC. Hours without rows may be missing. None: unknown.
        time_column: Column for hours if an expectation names none: Kafka's timestamp.
        now: Present time, by which hours are over; None: only later rows end an hour.
        hours: Hours to judge.
        progress: Called with the names of the next expectations.
    """

    coordinates: tuple[str, ...] = ()
    masked: tuple[tuple[str, ...], ...] = ()
    earlier_keys: EarlierKeys | None = None
    past_volumes: Callable[[str | None, datetime, datetime], Mapping[datetime, int]] | None = None
    time_column: str | None = None
    now: datetime | None = None
    hours: Extent = "new"
    progress: Callable[[str], Any] = field(default=lambda _: None)


def evaluate(
    rows: pa.Table | DataFrame, expectations: Sequence[Expectation], context: EvaluationContext
) -> list[ExpectationOutcome]:
    """Evaluate expectations on rows, with pandas on an Arrow table or Spark on a data frame, with equal outcomes.

    An expectation that cannot be evaluated has an outcome with a `problem`; the others are evaluated nevertheless.

    Args:
        rows: Rows with the table's column names.
        expectations: Expectations in any order.
        context: Further input.

    Returns:
        One outcome for each expectation, in their order.

    Raises:
        FrazilError: Great Expectations is not installed.
        Exception: Something that the evaluation needs is unavailable; the original error, no fault of the rows.
    """
    return _Evaluation(rows, context).outcomes(expectations)


class _Evaluation:
    def __init__(self, rows: pa.Table | DataFrame, context: EvaluationContext) -> None:
        import pyarrow as pa

        self._spark: bool = not isinstance(rows, pa.Table)
        self._rows: Rows = SparkRows(rows) if not isinstance(rows, pa.Table) else ArrowRows(rows)
        self._context: EvaluationContext = context
        self._hidden: Hidden = Hidden(context.masked)
        self._coordinates: list[str] = [name for name in context.coordinates if name in self._rows.schema.names]

    def outcomes(self, expectations: Sequence[Expectation]) -> list[ExpectationOutcome]:
        found: dict[int, ExpectationOutcome] = {}
        plans: list[PlannedExpectation] = []
        for number, expectation in enumerate(expectations):
            try:
                if expectation.type in OWN:
                    self._context.progress(expectation.name)
                    found[number] = self._own(expectation)
                else:
                    plans.append(planned(number, expectation, partial(find_column, self._rows.schema)))
            except NotEvaluable as why:
                found[number] = outcome(expectation, problem=str(why))
        for group in _groups(plans):
            self._context.progress(", ".join(plan.expectation.name for plan in group))
            found |= self._group(group)
        return [found[number] for number in range(len(expectations))]

    def _group(self, plans: Sequence[PlannedExpectation]) -> dict[int, ExpectationOutcome]:
        """Outcomes of expectations about the same rows."""
        try:
            batch, names = self._batch(plans)
        except NotEvaluable as why:
            return {plan.number: outcome(plan.expectation, problem=str(why)) for plan in plans}
        except Exception as error:
            if is_unavailable(error):
                raise
            return {plan.number: self._not_evaluated(plan, str(error)) for plan in plans}
        found: dict[int, ExpectationOutcome] = {}
        asked: dict[int, Any] = {}
        for plan in plans:
            try:
                asked[plan.number] = self._asked(plan, names)
            except ValueError as error:
                found[plan.number] = self._not_evaluated(plan, str(error))
        plans = [plan for plan in plans if plan.number in asked]
        counted = exact_expectations()["expect_table_row_count_to_be_between"](min_value=0, meta={KEY: -1})
        found_metrics.clear()
        results = batch.validate([*asked.values(), counted])
        failed = [number for number in asked if error_of(results[number])]
        if len(asked) > 1:
            # One job computes many metrics, and one may have ended it for all. So each is evaluated separately now.
            for number in failed:
                results |= batch.validate([asked[number]])
        metrics = dict(found_metrics)
        rejected = [
            plan
            for plan in plans
            if plan.about_rows and not error_of(results[plan.number]) and unexpected_rows(metrics[plan.number])
        ]
        found_metrics.clear()
        if rejected:
            batch.validate([asked[plan.number] for plan in rejected], samples=_aliases(self._coordinates) or [ANY])
        rows = {number: index_list(each) for number, each in found_metrics.items()}
        total = metrics.get(-1, {}).get("table.row_count")
        for plan in plans:
            result, number = results[plan.number], plan.number
            if error := error_of(result):
                found[number] = self._not_evaluated(plan, error)
            elif plan.about_rows:
                found[number] = self._about_rows(
                    plan, bool(result.success), metrics[number], rows.get(number, ()), names
                )
            else:
                found[number] = self._about_all(plan, bool(result.success), metrics[number], total)
        return found

    def _batch(self, plans: Sequence[PlannedExpectation]) -> tuple[Batch, dict[SeenColumn, str]]:
        if plans[0].expectation.type in SCHEMA:
            import pandas as pd

            # Expectations about column names compute nothing.
            exact_expectations()
            return Batch(pd.DataFrame(columns=self._rows.schema.names), spark=False), {}
        seen = dict.fromkeys(column for plan in plans for column in plan.columns)
        names = {column: f"c{number}" for number, column in enumerate(seen)}
        also = dict(zip(_aliases(self._coordinates), self._coordinates, strict=True))
        exact_expectations()
        frame = self._rows.seen({name: column for column, name in names.items()}, also, plans[0].condition)
        # Not cached: few jobs read it, each a few columns, and caching all of them took a third more CPU.
        return Batch(frame, spark=self._spark), names

    def _asked(self, plan: PlannedExpectation, names: Mapping[SeenColumn, str]) -> Any:
        kind = exact_expectations()[plan.expectation.type]
        return kind(**plan.arguments(names, spark=self._spark), meta={KEY: plan.number})

    def _not_evaluated(self, plan: PlannedExpectation, error: str) -> ExpectationOutcome:
        # An error may quote values, also of other columns.
        said = "what was found is masked" if self._context.masked else one_line(error)
        return outcome(plan.expectation, problem=f"could not evaluate: {said}")

    def _about_rows(
        self,
        plan: PlannedExpectation,
        passed: bool,
        metrics: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        names: Mapping[SeenColumn, str],
    ) -> ExpectationOutcome:
        unexpected, judged = unexpected_rows(metrics), elements(metrics)
        samples = []
        for row in rows[:MOST_SAMPLES]:
            shown = [
                (seen.column.name, self._hidden.shown(seen.column.name, seen.shown(row.get(names[seen]))))
                for seen in plan.columns
            ]
            at = zip(self._coordinates, _aliases(self._coordinates), strict=True)
            where = {own: plain(row.get(alias)) for own, alias in at if not self._hidden.hides(own)}
            text = shown[0][1] if len(shown) == 1 else ", ".join(f"{name}: {value}" for name, value in shown)
            samples.append(Sample(where, text))
        return outcome(
            plan.expectation,
            passed=passed,
            elements=judged,
            unexpected=unexpected,
            share=unexpected / judged if judged else 0.0,
            samples=tuple(samples),
            filter=row_filter(plan),
        )

    def _about_all(
        self, plan: PlannedExpectation, passed: bool, metrics: Mapping[str, Any], total: int | None
    ) -> ExpectationOutcome:
        hidden = self._hidden.any_of(plan.involved())
        rows = None if plan.expectation.type in SCHEMA or total is None else int(total)
        found = observed(plan, metrics.get("result", {}), hidden=hidden)
        return outcome(plan.expectation, passed=passed, elements=rows, observed=found)

    def _own(self, expectation: Expectation) -> ExpectationOutcome:
        given = expectation.arguments
        try:
            if expectation.type == KEYS_TO_BE_UNIQUE:
                columns = expectation.columns
                earlier, hidden = self._context.earlier_keys, self._hidden.any_of(columns)
                result = unique_keys(self._rows, columns, self._coordinates, earlier, hidden=hidden)
                return self._of_keys(expectation, result)
            column = given.get("column") or self._context.time_column
            volumes = self._context.past_volumes
            if column is None or volumes is None:
                raise NotEvaluable("rows per hour of the past are not known here")
            bounds, named = _bounds(given), given.get("column")
            result = usual_volume(
                *(self._rows, column, bounds, lambda first, last: volumes(named, first, last)),
                now=self._context.now,
                extent=self._context.hours,
            )
        except NotEvaluable:
            raise
        except Exception as error:
            if is_unavailable(error):
                raise
            said = "what was found is masked" if self._context.masked else one_line(str(error))
            raise NotEvaluable(f"could not evaluate: {said}") from None
        return outcome(expectation, passed=result.passed, elements=result.elements, observed=result.observed)

    def _of_keys(self, expectation: Expectation, result: OwnResult) -> ExpectationOutcome:
        samples = []
        for row in result.rows:
            where = {name: plain(row[name]) for name in self._coordinates if not self._hidden.hides(name)}
            shown = [(name, self._hidden.shown(name, str(plain(row[name])))) for name in expectation.columns]
            text = shown[0][1] if len(shown) == 1 else ", ".join(f"{name}: {value}" for name, value in shown)
            samples.append(Sample(where, text))
        unexpected = result.unexpected or 0
        return outcome(
            expectation,
            passed=result.passed,
            elements=result.elements,
            unexpected=unexpected,
            share=unexpected / result.elements if result.elements else 0.0,
            observed=result.observed,
            samples=tuple(samples),
        )


def _bounds(given: Mapping[str, Any]) -> VolumeBounds:
    past, grace = (
        parse_duration(given[name]) if name in given else usual for name, usual in (("past", PAST), ("grace", GRACE))
    )
    return VolumeBounds(given.get("min_ratio"), given.get("max_ratio"), past, grace)


def _groups(plans: Sequence[PlannedExpectation]) -> list[list[PlannedExpectation]]:
    """Groups of expectations about the same rows: one frame for each row condition, and one for column names."""
    groups: dict[object, list[PlannedExpectation]] = {}
    for plan in plans:
        groups.setdefault("schema" if plan.expectation.type in SCHEMA else plan.condition, []).append(plan)
    return list(groups.values())


def _aliases(coordinates: Sequence[str]) -> list[str]:
    return [f"k{number}" for number, _ in enumerate(coordinates)]
