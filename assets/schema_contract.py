"""Asset check `schema_contract`: whether a table takes the stream's records, before a record shows that it does not."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyiceberg.table import Table

from assets import dagster_names
from assets.failures import failure
from assets.last_reported import lasting
from assets.metadata import cell
from assets.stream_checks import CheckOutcome, check_result
from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.declared import declared_contract, identifier_sentence
from jobs.quality.schema_checks.finding import ContractFinding, Level, worst
from jobs.quality.schema_checks.subjects import (
    key_subjects_of,
    listed,
    renames_sentence,
    subject_sentences,
    subjects_of,
)
from jobs.records.schema.difference import RenameSuggestion
from jobs.records.schema.iceberg_schema import with_null
from jobs.tables.commit.protocol.named_tables import with_told_tables
from jobs.tables.write.table_remaking import is_as_made
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, RegistryResource

if TYPE_CHECKING:
    from jobs.clients.registry.client import RegistryClient
    from jobs.quality.schema_checks.subjects import SubjectContract
    from jobs.streaming.driver.tables.schema_proposals import SchemaProposal


SCHEMA_CONTRACT = "schema_contract"
DESCRIPTION = (
    "The table takes the stream's records: the file's columns and the newest schemas of its subjects are compared "
    "with the table, before a record comes (by the sensor frazil_schemas). Warns if records would become dead "
    "letters or somebody has to decide; fails if the stream would stop."
)
_SHOWN = 50


def contract_outcome(
    spec: StreamSpec,
    table: Table | None,
    downstream: Sequence[str] = (),
    subjects: "Sequence[SubjectContract]" = (),
    proposed: "Sequence[SchemaProposal]" = (),
    unasked: str | None = None,
) -> CheckOutcome:
    """The outcome of the check for a stream.

    Args:
        table: Table of the stream's rows as it is now; None if it does not exist yet.
        subjects: Newest versions of the subjects of the stream's records.
        proposed: Schema change proposals that wait for a decision.
        unasked: Why the registry could not be asked; None if it answered.
    """
    figures: dict[str, Any] = {"downstream": _markdown_list(downstream) if downstream else "none that Dagster knows"}
    if table is None:
        return _outcome("ok", f"Table {spec.table.name} does not exist yet; the first run creates it.", figures)
    # Ids as text, so that Dagster does not plot them.
    figures["schema_id"] = str(table.metadata.current_schema_id)
    figures |= {f"version of {each.name}": str(each.version) for each in subjects if each.version is not None}
    if is_as_made(table.metadata, spec.stream) and not spec.tables_follow:
        return _outcome("ok", f"Table {spec.table.name} has no rows; the next run makes it as it is needed.", figures)
    found, bad = list[ContractFinding](), list[tuple[Level, str, str]]()
    good: list[str] = []
    if spec.decode.declared is not None:
        held = declared_contract(spec, table.schema(), properties=table.properties)
        found += held.findings
        if not held.fits:
            fix = f"frazil schema {'apply' if held.can_be_applied else 'diff'} {spec.stream}"
            wrong = listed([each for each in held.findings if each.level != "ok"])
            said = f"A driver with streams/{spec.stream}.yaml would not start, so the former one goes on: {wrong}."
            bad.append((worst(list(held.findings)), said, fix))
        bad += _renames(spec, held.renames)
    if other := identifier_sentence(spec, table.schema()):
        bad.append(("warn", f"{other[0].upper()}{other[1:]}.", f"frazil schema apply {spec.stream}"))
    for subject in subjects:
        found += subject.findings
        said = subject_sentences(subject, spec.table.name)
        if subject.level == "ok":
            good.append(said)
        else:
            bad.append((subject.level, said, f"frazil schema check {spec.stream} --against {subject.name}"))
        bad += _renames(spec, subject.renames)
    if proposed:
        figures["proposals"] = _markdown_list(
            [f"`{each.digest}` {each.says}{f'; or {each.rename}' if each.rename else ''}" for each in proposed]
        )
        wait = "change waits" if len(proposed) == 1 else "changes wait"
        says = "; ".join(each.says for each in proposed[:3])
        said = f"{len(proposed)} {wait} for a decision: {says}."
        bad.append(("warn", said, f"frazil schema apply {spec.stream}"))
    figures |= {"differences": len(found), "proposed_changes": len(proposed)}
    if found:
        figures["findings"] = dg.MetadataValue.md(findings_markdown(found))
    matters = any(each.outcome not in ("lands", "null", "left_out") for each in found)
    concerned = _downstream_sentence(downstream) if matters else []
    if not bad:
        sentences = good or [_fits(spec, unasked)]
        return _outcome("ok", " ".join([*sentences, *concerned]), figures, found, downstream)
    figures["next"] = bad[0][2]
    level: Level = "error" if any(each[0] == "error" for each in bad) else "warn"
    sentence = " ".join([*(said for _, said, _ in bad), *concerned])
    return _outcome(level, f"{sentence} Next: {bad[0][2]}", figures, found, downstream)


def _renames(spec: StreamSpec, found: Sequence[RenameSuggestion]) -> list[tuple[Level, str, str]]:
    """Warnings about columns that may be renamed ones: somebody should look before their first record comes."""
    if not found:
        return []
    return [("warn", renames_sentence(spec.stream, found), f"frazil schema apply {spec.stream} {found[0].option}")]


def _downstream_sentence(downstream: Sequence[str]) -> list[str]:
    more = f" and {len(downstream) - 3} more" if len(downstream) > 3 else ""
    return [f"Made from the table: {', '.join(downstream[:3])}{more}."] if downstream else []


def _markdown_list(texts: Sequence[str]) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md("\n".join(f"- {cell(each)}" for each in texts[:_SHOWN]))


def _fits(spec: StreamSpec, unasked: str | None) -> str:
    if unasked is not None:
        return f"What records will bring is not known: {unasked}"
    if spec.decode.declared is not None:
        return f"Table {spec.table.name} takes what streams/{spec.stream}.yaml declares."
    if spec.decode.needs_registry:
        if named := (*subjects_of(spec), *key_subjects_of(spec)):
            return f"The registry has no subject {' or '.join(named[:3])} yet."
        return "Which subjects the records are of is not known before they come: decode.subject names none."
    return f"The columns of table {spec.table.name} are from: {spec.decode.schema_source}."


def _outcome(
    level: Level,
    sentence: str,
    figures: dict[str, Any],
    findings: Sequence[ContractFinding] = (),
    downstream: Sequence[str] = (),
) -> CheckOutcome:
    differences = [(each.difference.column, each.difference.kind, each.outcome) for each in findings]
    code = f"{level}:{differences}:{list(downstream)}"
    return CheckOutcome(SCHEMA_CONTRACT, level == "ok", sentence, code, warn=level == "warn", figures=figures)


def findings_markdown(findings: Sequence[ContractFinding]) -> str:
    """The findings as a table in Markdown, the most severe first."""
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
    """The check of a stream's table for runs from the UI; the sensor `frazil_schemas` reports the same results.

    Args:
        spec: The stream as this code location has loaded it.
        keys: Asset keys of the stream's targets, in their order; the check is on the first.
    """

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "contract_", 1),
        description="Compares the stream's declared schema and its subjects with its table.",
        specs=[dg.AssetCheckSpec(SCHEMA_CONTRACT, asset=keys[0], description=DESCRIPTION)],
    )
    @lasting
    def compare_schemas(
        context: dg.AssetCheckExecutionContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        registry: RegistryResource,
    ) -> Iterator[dg.AssetCheckResult]:
        # Imported here: a code location that only loads should not wait for it.
        from jobs.clients.catalog.catalog import NoCatalogYet, find_table

        try:
            current = deployment.current(spec)
            try:
                table = find_table(catalog.quick(), current.table.name)
            except NoCatalogYet:
                table = None
        except FrazilError as problem:
            raise failure(problem) from None
        subjects, unasked = asked_subjects(current, table, registry.quick)
        proposed = open_proposals(current, deployment.settings(), table)
        targets = dagster_names.target_keys(deployment.settings(), with_told_tables(current, table and table.metadata))
        said = contract_outcome(current, table, _downstream(context, targets), subjects, proposed, unasked)
        yield check_result(said, keys[0])

    return compare_schemas


def asked_subjects(
    spec: StreamSpec, table: Table | None, registry: "Callable[[], RegistryClient]"
) -> "tuple[list[SubjectContract], str | None]":
    """Return the newest versions of a stream's subjects compared with its table, or why the registry was not asked."""
    from jobs.quality.schema_checks.subjects import asked_contracts

    if table is None or spec.own_columns:
        # `frazil schema diff STREAM --table NAME` compares tables that have columns of their own, one at a time.
        return [], None
    return asked_contracts(spec, table.metadata, registry)


def open_proposals(spec: StreamSpec, settings: Settings, table: Table | None) -> "list[SchemaProposal]":
    """Schema change proposals for a stream's table that wait for a decision."""
    from jobs.clients.state_store.stream_folder import stream_folder
    from jobs.config.stream.shaped_table import evolving_schema
    from jobs.streaming.driver.tables.schema_proposals import proposals

    if table is None or not spec.evolution.evolves:
        return []
    store = stream_folder(settings, spec.stream).store
    return proposals(store) if spec.own_columns else proposals(store, evolving_schema(spec, table.metadata))


def _downstream(context: dg.AssetCheckExecutionContext, keys: Sequence[dg.AssetKey]) -> list[str]:
    try:
        graph = context.repository_def.asset_graph
    except Exception:
        # A job that is executed outside of a code location has no graph.
        return []
    return downstream_of(graph, keys)


def downstream_of(graph: Any, keys: Sequence[dg.AssetKey]) -> list[str]:
    """Assets downstream of a stream's tables, directly or not, that this code location knows; sorted.

    Args:
        keys: Asset keys of the stream's targets, in their order: main table, dead letters, and the other tables of
            rows, dynamic tables among them. Assets downstream of the dead letters are not included.
    """
    found: set[dg.AssetKey] = set(keys)
    waiting = [*keys[:1], *keys[2:]]
    while waiting:
        at = waiting.pop()
        if not graph.has(at):
            continue
        children = graph.get(at).child_keys - found
        found |= children
        waiting.extend(children)
    return sorted(each.to_user_string() for each in found - set(keys))
