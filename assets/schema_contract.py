"""Schema contract in Dagster: the check whether a table takes what its stream's records bring, before one shows it."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from pyiceberg.table import Table

from assets import dagster_names
from assets.failures import failure
from assets.metadata import cell
from assets.stream_checks import CheckOutcome, check_result
from jobs.contract.declared import declared_contract
from jobs.contract.finding import ContractFinding, worst
from jobs.errors import FrazilError
from jobs.schema.iceberg_schema import with_null
from jobs.spec.models import StreamSpec
from jobs.spec.validation import SpecError
from jobs.write.table_remaking import is_as_made
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource

SCHEMA_CONTRACT = "schema_contract"
DESCRIPTION = (
    "The table takes what the stream's records bring: what its file declares, held against the table as it is now. "
    "Warns where records would become dead letters or somebody has to decide; fails where the stream would stop."
)
_SHOWN = 50


def contract_outcome(
    spec: StreamSpec, table: Table | None, downstream: Sequence[str] = (), file: str | None = None
) -> CheckOutcome:
    """What the check says of a stream.

    Args:
        spec: As its file is now.
        table: Of its rows, as it is now; None if it is not there yet.
        downstream: Assets that are made from it.
        file: What the sentence calls the stream's file.
    """
    figures: dict[str, Any] = {"downstream_assets": len(downstream)}
    if downstream:
        figures["downstream"] = dg.MetadataValue.md("\n".join(f"- {cell(each)}" for each in downstream[:_SHOWN]))
    if table is None:
        return _outcome("ok", f"Table {spec.table.name} is not there yet; the first run creates it.", figures)
    figures["schema_id"] = table.metadata.current_schema_id
    if is_as_made(table.metadata, spec.stream):
        return _outcome("ok", f"Table {spec.table.name} has no rows; the next run makes it as it is needed.", figures)
    if spec.decode.declared is None:
        return _outcome("ok", f"The columns of table {spec.table.name} are from: {spec.decode.schema_source}.", figures)
    found = declared_contract(spec, table.schema())
    figures["differences"] = len(found.findings)
    if found.findings:
        figures["findings"] = dg.MetadataValue.md(findings_markdown(found.findings))
    file = file or f"streams/{spec.stream}.yaml"
    if found.fits:
        return _outcome("ok", f"Table {spec.table.name} takes what {file} declares.", figures, found.findings)
    wrong = [finding for finding in found.findings if finding.level != "ok"]
    said = "; ".join(str(finding.difference) for finding in wrong[:3])
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    fix = f"frazil schema {'apply' if found.can_be_applied else 'diff'} {spec.stream}"
    sentence = f"A driver with {file} would not start, so the former one goes on: {said}{more}. Next: {fix}"
    return _outcome(worst(list(found.findings)), sentence, figures, found.findings)


def _outcome(
    level: str, sentence: str, figures: dict[str, Any], findings: Sequence[ContractFinding] = ()
) -> CheckOutcome:
    code = f"{level}:{[(each.difference.column, each.difference.kind, each.outcome) for each in findings]}"
    return CheckOutcome(SCHEMA_CONTRACT, level == "ok", sentence, code, warn=level == "warn", figures=figures)


def findings_markdown(findings: Sequence[ContractFinding]) -> str:
    """The findings as a table in Markdown, those that somebody should look at first."""
    lines = ["| column | difference | records | table | then |", "|---|---|---|---|---|"]
    order = {"error": 0, "warn": 1, "ok": 2}
    for finding in sorted(findings, key=lambda each: order[each.level])[:_SHOWN]:
        difference = finding.difference
        rows, table = (with_null(each) if each else "–" for each in (difference.rows, difference.table))
        kind, then = difference.kind.replace("_", " "), f"{finding.outcome.replace('_', ' ')}: {finding.why}"
        lines.append("| " + " | ".join(map(cell, (difference.column, kind, rows, table, then))) + " |")
    if len(findings) > _SHOWN:
        lines.append(f"| … | {len(findings) - _SHOWN:,} more | | | |")
    return "\n".join(lines)


def schema_contract_check(spec: StreamSpec, keys: Sequence[dg.AssetKey]) -> dg.AssetChecksDefinition:
    """The check of a stream's table, as it is executed from the UI; the sensor `frazil_schemas` reports the same.

    Args:
        spec: The stream as this code location has loaded it.
        keys: Of its targets, in their order; the check is its table's.
    """

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "contract_", 1),
        specs=[dg.AssetCheckSpec(SCHEMA_CONTRACT, asset=keys[0], description=DESCRIPTION)],
    )
    def compare_schemas(
        context: dg.AssetCheckExecutionContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> Iterator[dg.AssetCheckResult]:
        # Imported here: a code location that only loads should not wait for it.
        from jobs.catalog import NoCatalogYet, find_table

        try:
            try:
                current = deployment.stream(spec.stream)
            except SpecError:
                # Its file broke: it runs on as it was launched.
                current = spec
            try:
                table = find_table(catalog.quick(), current.table.name)
            except NoCatalogYet:
                table = None
        except FrazilError as problem:
            raise failure(problem) from None
        yield check_result(contract_outcome(current, table, _downstream(context, keys)), keys[0])

    return compare_schemas


def _downstream(context: dg.AssetCheckExecutionContext, keys: Sequence[dg.AssetKey]) -> list[str]:
    try:
        graph = context.repository_def.asset_graph
    except Exception:
        # A job that is run by itself belongs to no code location.
        return []
    return downstream_of(graph, keys)


def downstream_of(graph: Any, keys: Sequence[dg.AssetKey]) -> list[str]:
    """Assets that are made from a stream's table, directly or not, as far as this code location knows; in order.

    Args:
        graph: Dagster's graph of assets.
        keys: Of the stream's targets, its table first; its dead letters are no others' work.
    """
    found: set[dg.AssetKey] = set(keys[1:])
    waiting = [keys[0]]
    while waiting:
        at = waiting.pop()
        if not graph.has(at):
            continue
        children = graph.get(at).child_keys - found
        found |= children
        waiting.extend(children)
    return sorted(each.to_user_string() for each in found - set(keys))
