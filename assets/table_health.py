"""Table health in Dagster: a score with its parts, numbers for plots, and the asset check `table_health`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import dagster as dg

from assets import dagster_names
from assets.failures import failure
from assets.last_reported import is_driver_only, last_check_result, lasting
from assets.metadata import cell
from jobs.base.errors import FrazilError
from jobs.clients.state_store.table_health import RED_BELOW
from jobs.config.settings.maintained_tables import maintained_table
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.measure.health_facts import PartitionFacts, TableFacts
from jobs.maintenance.measure.health_score import WEIGHTS, Score, score
from jobs.maintenance.measure.maintenance_history import read_history, table_store
from jobs.maintenance.measure.text import size_text
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.maintenance.plan.plan import Plan


_SHOWN_PARTITIONS = 10
_SHOWN_STEPS = 20
_SIZES = tuple(mebibytes * 1024**2 for mebibytes in (0, 1, 4, 16, 64, 256))
TABLE_HEALTH = "table_health"
DESCRIPTION = (
    "The table's files, deletes, snapshots and manifests cost its readers and writers little: a score of {warn} or "
    "more of 100. Below {error} it is an error. Also warns of branches that grow and are not rebased. Evaluated "
    "each hour, by maintenance."
)
WARN_BELOW = 70
ERROR_BELOW = RED_BELOW


def histogram_markdown(partitions: Sequence[PartitionFacts]) -> str:
    """The number of data files by size, as a table in Markdown."""
    counts, sums = [0] * len(_SIZES), [0] * len(_SIZES)
    for size in (size for partition in partitions for size in partition.sizes):
        at = bisect_right(_SIZES, size) - 1
        counts[at] += 1
        sums[at] += size
    labels = [f"{size_text(low)} – {size_text(high)}" for low, high in pairwise(_SIZES)]
    labels[0] = f"below {size_text(_SIZES[1])}"
    labels.append(f"{size_text(_SIZES[-1])} and more")
    rows = [f"| {label} | {n:,} | {size_text(sum_)} |" for label, n, sum_ in zip(labels, counts, sums, strict=True)]
    return "\n".join(["| size | data files | in all |", "|---|---:|---:|", *rows])


def partitions_markdown(partitions: Sequence[PartitionFacts], small_below: float) -> str:
    """The partitions with the most small files and deletes; empty if there are none, or no partitions."""
    ranked = sorted(
        ((len(partition.smaller(small_below)), partition) for partition in partitions if partition.name),
        key=lambda item: (-item[0] - item[1].delete_files, item[1].name),
    )
    worst = [(small, partition) for small, partition in ranked if small > 1 or partition.delete_files]
    if not worst:
        return ""
    lines = ["| partition | small | data files | in all | delete files |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {cell(partition.name)} | {small:,} | {partition.files:,} | {size_text(partition.bytes)} | "
        f"{partition.delete_files:,} |"
        for small, partition in worst[:_SHOWN_PARTITIONS]
    ]
    if len(worst) > _SHOWN_PARTITIONS:
        lines.append(f"| {len(worst) - _SHOWN_PARTITIONS:,} more | | | | |")
    return "\n".join(lines)


def plan_markdown(plan: "Plan") -> str:
    """The maintenance plan of a table as Markdown, in the order of its actions."""
    lines = ["| action | where | why | files | bytes |", "|---|---|---|---:|---:|"]
    lines += [
        f"| {step.action} | {cell(step.scope)} | {cell(step.reason)} | "
        f"{step.files_before:,} → {step.files_after:,} | {size_text(step.bytes)} |"
        for step in plan.steps[:_SHOWN_STEPS]
    ]
    if len(plan.steps) > _SHOWN_STEPS:
        lines.append(f"| {len(plan.steps) - _SHOWN_STEPS:,} more | | | | |")
    return "\n".join(lines)


def left_markdown(plan: "Plan") -> str:
    """The plan's warnings, notes on branches, and skipped actions with their reasons, as Markdown; empty if none."""
    said = [*plan.warnings, *plan.branches, *(_left(skip.action, skip.scope, skip.reason) for skip in plan.skips)]
    lines = [f"- {cell(each)}" for each in said[:_SHOWN_STEPS]]
    if len(said) > _SHOWN_STEPS:
        lines.append(f"- {len(said) - _SHOWN_STEPS:,} more")
    return "\n".join(lines)


def _left(action: str, scope: str, reason: str) -> str:
    return f"{action.replace('_', ' ')}{f' of {scope}' if scope else ''}: {reason}"


def health_metadata(facts: TableFacts, scored: Score, plan: "Plan | None" = None) -> dict[str, Any]:
    """A table's health as metadata: all numbers in every report, under stable keys, so that Dagster plots them.

    Args:
        facts: Measured files, snapshots and manifests of the table.
        scored: Health score of the facts.
        plan: Maintenance plan; None if nobody planned.
    """
    told: dict[str, Any] = {
        "health": scored.total,
        **{f"health_lost_{name}": scored.parts[name] for name in WEIGHTS},
        "data_files": facts.data_files,
        "small_files": scored.small_files,
        "table_bytes": facts.bytes,
        "average_file_bytes": round(facts.average_file),
        "delete_files": facts.delete_files,
        "delete_ratio": round(facts.delete_ratio, 6),
        "manifests": facts.manifests,
        "manifest_bytes": facts.manifest_bytes,
        "snapshots": facts.snapshots,
        "branch_files": sum(each.files for each in facts.branches),
        "branch_replaced_files": sum(each.replaced_files for each in facts.branches),
        "branch_replaced_bytes": sum(each.replaced_bytes for each in facts.branches),
        "metadata_bytes": facts.metadata_bytes,
        "growth_bytes_per_day": round(facts.bytes_per_day),
        "growth_files_per_day": round(facts.files_per_day, 1),
        "commits_per_day": round(facts.commits_per_day, 1),
    }
    told |= {f"hours_since_{action}": round(hours, 2) for action, hours in sorted(scored.hours_since.items())}
    if facts.partitions is not None:
        # Without partitions, no manifest was read, and the figure is unknown.
        told["largest_small_files_of_a_partition"] = max(
            (len(partition.smaller(scored.small_below)) for partition in facts.partitions), default=0
        )
        told["file_sizes"] = dg.MetadataValue.md(histogram_markdown(facts.partitions))
        worst = partitions_markdown(facts.partitions, scored.small_below)
        told |= {"partitions": dg.MetadataValue.md(worst)} if worst else {}
    if plan is not None:
        told |= {"planned_actions": len(plan.steps), "planned_bytes": plan.bytes, "planned_s": round(plan.seconds, 1)}
        if plan.steps:
            told["plan"] = dg.MetadataValue.md(plan_markdown(plan))
        if left := left_markdown(plan):
            told["left_as_it_is"] = dg.MetadataValue.md(left)
    if facts.snapshot_id is not None:
        # As text: JavaScript rounds integers as large as snapshot ids.
        told["snapshot_id"] = str(facts.snapshot_id)
    return told


def health_sentence(name: str, scored: Score, branches: Sequence[str] = ()) -> str:
    """The verdict in words: the score, its lost points, the next command, and notes on branches.

    Args:
        branches: See `jobs.maintenance.plan.plan.Plan`.
    """
    lost = sorted((part for part in WEIGHTS if scored.parts[part]), key=lambda part: -scored.parts[part])
    said = " ".join(
        f"{part.replace('_', ' ').capitalize()} −{scored.parts[part]}: {scored.sentences[part]}" for part in lost
    )
    sentence = f"Health {scored.total} of 100.{' ' if said else ''}{said}"
    if scored.total < WARN_BELOW:
        sentence += f" Next: frazil maintain {name} --plan" + ("." if branches else "")
    return " ".join([sentence, *branches])


def health_result(
    facts: TableFacts, scored: Score, key: dg.AssetKey, plan: "Plan | None" = None
) -> dg.AssetCheckResult:
    """The check result for a run."""
    return dg.AssetCheckResult(**_verdict(facts, scored, key, plan))


def health_evaluation(
    facts: TableFacts, scored: Score, key: dg.AssetKey, branches: Sequence[str] = ()
) -> dg.AssetCheckEvaluation:
    """The check as an event, for a run that looks at many tables.

    Args:
        branches: The plan's notes on branches that maintenance does not fix.
    """
    return dg.AssetCheckEvaluation(**_verdict(facts, scored, key, branches=branches))


def _verdict(
    facts: TableFacts, scored: Score, key: dg.AssetKey, plan: "Plan | None" = None, branches: Sequence[str] = ()
) -> dict[str, Any]:
    branches = plan.branches if plan is not None else branches
    return {
        "asset_key": key,
        "check_name": TABLE_HEALTH,
        "passed": scored.total >= WARN_BELOW and not branches,
        "severity": dg.AssetCheckSeverity.ERROR if scored.total < ERROR_BELOW else dg.AssetCheckSeverity.WARN,
        "description": health_sentence(facts.name, scored, branches),
        "metadata": health_metadata(facts, scored, plan),
    }


def health_check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The spec of the check on a table."""
    text = DESCRIPTION.format(warn=WARN_BELOW, error=ERROR_BELOW)
    return dg.AssetCheckSpec(TABLE_HEALTH, asset=key, description=text)


def health_checks(spec: StreamSpec, target_keys: Sequence[dg.AssetKey]) -> dg.AssetChecksDefinition:
    """The checks of a stream's targets for runs from the UI; they start no JVM."""
    keys = dict(zip(spec.target_names, target_keys, strict=True))

    @dg.multi_asset_check(
        name=dagster_names.op_name(spec).replace("drain_", "health_", 1),
        description="Measures files, snapshots and manifests of the stream's tables. Starts no JVM.",
        specs=[health_check_spec(key) for key in keys.values()],
        can_subset=True,
    )
    @lasting
    def measure_tables(
        context: dg.AssetCheckExecutionContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> Iterator[dg.AssetCheckResult]:
        # Imported here: a code location that only loads should not wait for it.
        from jobs.clients.catalog.translate import translate_errors

        selected = {check.asset_key for check in context.selected_asset_check_keys}
        if is_driver_only(context, spec, target_keys[0]):
            for name, key in keys.items():
                kept = last_check_result(context, key, TABLE_HEALTH, f"frazil maintain {name} --plan")
                if key in selected and kept is not None:
                    yield kept
            return
        settings = deployment.settings()
        specs, _ = deployment.deployment().streams()
        try:
            with translate_errors(settings, spec.stream), catalog.catalog() as connected:
                for name, key in keys.items():
                    if key in selected:
                        yield _checked(connected, name, specs, settings, key)
        except FrazilError as problem:
            raise failure(problem) from None

    return measure_tables


def _checked(
    catalog: "Catalog", name: str, specs: Sequence[StreamSpec], settings: Settings, key: dg.AssetKey
) -> dg.AssetCheckResult:
    from pyiceberg.exceptions import NoSuchTableError

    from jobs.maintenance.measure.health_measurement import measure_health
    from jobs.maintenance.plan.plan_expiry import may_be_due
    from jobs.maintenance.plan.planner import plan
    from jobs.maintenance.plan.table_context import TableContext
    from jobs.maintenance.run.branch_remake import gated_branches
    from jobs.maintenance.run.snapshot_expiry import expected_cutoff

    policy = maintained_table(settings, specs, name).require()
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return dg.AssetCheckResult(
            passed=True, asset_key=key, check_name=TABLE_HEALTH, description="There is no table yet."
        )
    now = datetime.now(UTC)
    facts = measure_health(table, policy, now)
    history = read_history(table_store(settings, facts.uuid))
    # Planning does not start Spark.
    context = TableContext(catalog, settings, specs, name, policy, _no_spark)
    gated = gated_branches(context, table, facts)
    cutoff = expected_cutoff(context, table, now) if may_be_due(facts, policy.expire, now) else None
    planned = plan(facts, policy, history, now, cutoff=cutoff, gated=gated)
    return health_result(facts, score(facts, policy, history), key, planned)


def _no_spark() -> NoReturn:
    raise AssertionError("a check of a table's health starts no JVM")
