"""Asset checks of a contract: one for each expectation, on new rows of a table or new dead letters."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets import dagster_names
from assets.audit_check import EXACTLY_ONCE
from assets.dead_letters import LETTERS_WAITING, REPLAY_WOULD_HELP
from assets.failures import failure
from assets.last_reported import is_driver_only, last_check_result, lasting
from assets.published_check import PUBLISHED
from assets.schema_contract import SCHEMA_CONTRACT
from assets.stream_checks import ADDS_UP, DESCRIPTIONS
from assets.table_health import TABLE_HEALTH
from jobs.base.errors import FrazilError
from jobs.config.contract.contract import Expectation
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, SparkResource

if TYPE_CHECKING:
    from jobs.quality.contracts.check_result import TableCheck
    from jobs.quality.contracts.outcome import ExpectationOutcome


_SHOWN_RANGES = 100
# Names of checks that every table or dead-letter table has.
_TAKEN = frozenset(
    {*DESCRIPTIONS, ADDS_UP, EXACTLY_ONCE, PUBLISHED, SCHEMA_CONTRACT, TABLE_HEALTH, LETTERS_WAITING, REPLAY_WOULD_HELP}
)
_PREFIXES = {"rows": "check_", "dead_letters": "dead_check_"}
_CRITICAL = "critical"
_MOST_TEXT = 300


def outcome_metadata(found: "TableCheck", outcome: "ExpectationOutcome") -> dict[str, Any]:
    """The metadata of an expectation's outcome.

    Args:
        outcome: The outcome; its samples are masked already.
    """
    told: dict[str, Any] = {"rows_checked": found.rows}
    if outcome.elements is not None:
        told["elements"] = outcome.elements
    if outcome.unexpected is not None:
        told["unexpected_rows"] = outcome.unexpected
    if outcome.share is not None:
        told["unexpected_share"] = round(outcome.share, 9)
    told |= {
        "check_seconds": round(found.seconds, 3),
        "severity": outcome.severity,
        "expectation": outcome.type,
        "rows_of": found.extent,
        "engine": found.engine or "none",
        "counts_as_checked": found.recorded,
    }
    if outcome.arguments:
        told["arguments"] = ", ".join(f"{name}: {each}" for name, each in outcome.arguments.items())
    if outcome.observed is not None:
        told["observed"] = outcome.observed
    if outcome.problem is not None:
        told["problem"] = outcome.problem
    told |= {f"meta_{name}": str(each) for name, each in outcome.meta.items()}
    told |= _extent(found)
    if outcome.samples:
        told["samples"] = dg.MetadataValue.table(
            [
                dg.TableRecord({**{name: _scalar(each) for name, each in one.coordinates.items()}, "value": one.value})
                for one in outcome.samples
            ]
        )
    if (sql := found.sql.get(outcome.name)) is not None:
        told["rows_sql"] = dg.MetadataValue.md(f"```sql\n{sql}\n```")
    return told


def _extent(found: "TableCheck") -> dict[str, Any]:
    increment = found.found
    if increment is None or increment.head is None:
        return {}
    # As text: JavaScript rounds integers as large as snapshot ids.
    told: dict[str, Any] = {"snapshot_id": str(increment.head.snapshot_id)}
    if found.asked.scope != "increment":
        return told
    told["snapshots_checked"] = len(increment.snapshots)
    if increment.begin is not None:
        told["since_snapshot_id"] = str(increment.begin)
    if increment.first_at is not None and increment.last_at is not None:
        told["first_commit"] = dg.MetadataValue.timestamp(increment.first_at)
        told["last_commit"] = dg.MetadataValue.timestamp(increment.last_at)
    ranges = [(str(source), *each) for source, spans in sorted(increment.ranges.items()) for each in spans]
    if ranges:
        shown = [{"partition": name, "start": start, "end": end} for name, start, end in ranges[:_SHOWN_RANGES]]
        told["offsets"] = dg.MetadataValue.json(shown)
    return told


def _scalar(value: object) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


class ContractConfig(dg.Config):
    """Rows to check; by default those that are new since the last check of the whole contract."""

    whole: bool = Field(default=False, description="Look at the whole table.")
    where: str = Field(default="", description="Only the rows that meet this condition, such as day = '2026-01-01'.")
    engine: str = Field(default="", description="pandas or spark; without it Spark if there are many rows.")


def expectations_by_key(
    spec: StreamSpec, keys: Sequence[dg.AssetKey]
) -> dict[dg.AssetCheckKey, tuple[TargetSpec, Expectation]]:
    """The expectations of a stream's contract with their tables, by the key of their check."""
    contract = spec.contract
    if contract is None:
        return {}
    return {
        dg.AssetCheckKey(key, check_name(each)): (target, each)
        for target, key in zip(spec.targets, keys, strict=True)
        for each in contract.about(target)
    }


def check_name(expectation: Expectation) -> str:
    """The name of an expectation's check: the expectation's name, unless frazil has a check of that name itself."""
    return f"contract_{expectation.name}" if expectation.name in _TAKEN else expectation.name


def contract_checks(spec: StreamSpec, keys: Sequence[dg.AssetKey]) -> Iterator[dg.AssetChecksDefinition]:
    """Yield one definition for each table that the stream's contract checks; none without a contract."""
    every = expectations_by_key(spec, keys)
    for target in spec.targets:
        mine = {key: expectation for key, (of, expectation) in every.items() if of == target}
        if mine:
            yield _target_checks(spec, target, mine, keys[0])


def _target_checks(
    spec: StreamSpec, target: TargetSpec, known: Mapping[dg.AssetCheckKey, Expectation], table_key: dg.AssetKey
) -> dg.AssetChecksDefinition:
    # One definition for each table: if one table cannot be checked, the others still are.
    @dg.multi_asset_check(
        name=_op_name(spec, target),
        description=f"Checks the rows of `{target.name}` that are new since the last check against the contract.",
        can_subset=True,
        specs=[_check_spec(key, expectation) for key, expectation in known.items()],
    )
    @lasting
    def check_contract(
        context: dg.AssetCheckExecutionContext,
        config: ContractConfig,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        spark: SparkResource,
    ) -> Iterator[dg.AssetCheckResult]:
        selected = {key: each for key, each in known.items() if key in context.selected_asset_check_keys}
        if is_driver_only(context, spec, table_key):
            yield from _as_before(context, spec, selected)
            return
        # Imported here: a code location that only loads should not wait for modules that only a check needs.
        from jobs.clients.catalog.translate import translate_errors
        from jobs.quality.contracts.check import Check
        from jobs.quality.contracts.check_result import CheckedRows

        settings, now = deployment.settings(), deployment.current(spec)
        there = _still_expected(now, target, selected)
        if not there:
            yield from _as_before(context, spec, selected)
            return
        try:
            with translate_errors(settings, spec.stream), catalog.catalog() as connected:
                found = Check(
                    spec=now,
                    settings=settings,
                    catalog=connected,
                    spark=lambda: spark.get_session("sql"),
                    rows=CheckedRows.of(config.whole, config.where or None),
                    only=there if len(selected) < len(known) else (),
                    engine=_engine(config.engine),
                    by=f"Dagster, run {context.run.run_id}",
                    on_progress=_Progress(context),
                ).run(target)
        except FrazilError as problem:
            raise failure(problem) from None
        context.log.info(f"{found.extent} {_recorded(found)}")
        yield from _results(context, spec, found, selected)

    return check_contract


def _op_name(spec: StreamSpec, target: TargetSpec) -> str:
    """The unique name of the op that checks a table."""
    if target.coordinator or target.role == "dead_letters":
        return dagster_names.op_name(spec).replace("drain_", _PREFIXES[target.role], 1)
    # Without the digest, tables whose names differ only in a dot would share an op's name.
    digest = hashlib.sha256(target.name.encode()).hexdigest()[:8]
    table = re.sub(r"\W", "_", target.name, flags=re.ASCII)
    return f"{dagster_names.op_name(spec).replace('drain_', 'table_check_', 1)}_{table}_{digest}"


def _check_spec(key: dg.AssetCheckKey, expectation: Expectation) -> dg.AssetCheckSpec:
    arguments = ", ".join(f"{name}: {value}" for name, value in expectation.arguments.items())
    text = f"{expectation.type} ({arguments})" if arguments else expectation.type
    return dg.AssetCheckSpec(
        key.name,
        asset=key.asset_key,
        description=text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…",
        blocking=expectation.severity == _CRITICAL,
        metadata={
            "severity": expectation.severity,
            **{f"meta_{name}": str(each) for name, each in expectation.meta.items()},
        },
    )


def _still_expected(now: StreamSpec, target: TargetSpec, mine: Mapping[dg.AssetCheckKey, Expectation]) -> list[str]:
    """The names of loaded expectations that the file still has; it may be newer than what Dagster has loaded."""
    contract = now.contract
    if contract is None:
        return []
    there = {each.name for each in contract.about(target)}
    return [each.name for each in mine.values() if each.name in there]


def _engine(text: str) -> Any:
    if text not in ("", "pandas", "spark"):
        raise FrazilError(f"engine: '{text}' is neither pandas nor spark.", fix="leave it empty")
    return text or None


def _recorded(found: "TableCheck") -> str:
    if found.recorded:
        return f"{found.rows:,} rows count as checked from now on."
    return f"They do not count as checked: {found.not_recorded}." if found.not_recorded else ""


def _as_before(
    context: dg.AssetCheckExecutionContext, spec: StreamSpec, selected: Iterable[dg.AssetCheckKey]
) -> Iterator[dg.AssetCheckResult]:
    for key in selected:
        kept = last_check_result(context, key.asset_key, key.name, f"frazil check {spec.stream}")
        if kept is not None:
            yield kept


def _results(
    context: dg.AssetCheckExecutionContext,
    spec: StreamSpec,
    found: "TableCheck",
    mine: Mapping[dg.AssetCheckKey, Expectation],
) -> Iterator[dg.AssetCheckResult]:
    outcomes = {each.name: each for each in found.outcomes}
    for key, expectation in mine.items():
        outcome = outcomes.get(expectation.name)
        if outcome is not None:
            yield check_result(found, outcome, key)
            continue
        # No row was new, so the last result still holds. If there is none, the check stays without a result: it must
        # not pass rows that nobody has looked at.
        whole = f"frazil check {spec.stream} --all"
        kept = last_check_result(context, key.asset_key, key.name, whole, "where no row is new")
        if kept is not None:
            yield kept


def check_result(found: "TableCheck", outcome: "ExpectationOutcome", key: dg.AssetCheckKey) -> dg.AssetCheckResult:
    """The check result of an expectation's outcome: failures are errors if critical, otherwise warnings."""
    severity = dg.AssetCheckSeverity.ERROR if outcome.severity == _CRITICAL else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        passed=outcome.passed,
        asset_key=key.asset_key,
        check_name=key.name,
        severity=severity,
        description=_sentence(found, outcome),
        metadata=outcome_metadata(found, outcome),
    )


def _sentence(found: "TableCheck", outcome: "ExpectationOutcome") -> str:
    if outcome.problem is not None:
        return f"It could not be evaluated: {outcome.problem}"
    seen = f" It found {outcome.observed}." if outcome.observed else ""
    if outcome.passed:
        return f"{found.rows:,} rows are as expected.{seen} {found.extent}"
    which = "The rows"
    if outcome.unexpected is not None and outcome.elements:
        share = outcome.unexpected / outcome.elements
        which = f"{outcome.unexpected:,} of {outcome.elements:,} rows ({share:.2%})"
    # These rows count as checked, so the next check does not look at them again.
    fix = f"frazil check {found.stream} --all --only {outcome.name}"
    return f"{which} are not as expected.{seen} {found.extent} Next: {fix}"


class _Progress:
    """Logs the steps of a check, each once."""

    def __init__(self, context: dg.AssetCheckExecutionContext) -> None:
        self._context: dg.AssetCheckExecutionContext = context
        self._said: str = ""

    def __call__(self, said: str) -> None:
        # Growing row counts are not logged.
        if said.endswith("rows read"):
            return
        if said != self._said:
            self._said = said
            self._context.log.info(said)
