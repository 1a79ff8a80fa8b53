"""A table's health in Dagster: numbers that plot, the check, and the check as it is executed from the UI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets.table_health import (
    TABLE_HEALTH,
    health_checks,
    health_evaluation,
    health_metadata,
    health_result,
    histogram_markdown,
    partitions_markdown,
)
from jobs.clients.catalog.catalog import connect_catalog
from jobs.maintenance.measure.health_facts import BranchFacts
from jobs.maintenance.measure.health_score import score
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.plan.planner import plan
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource
from tests.unit.maintenance.metadata_tables import (
    MB,
    SCHEMA,
    append,
    file_of,
    partition,
    policy,
    table_of,
)
from tests.unit.orchestration.deployments import deployment_in

# Dagster's own way of making one resource from another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

KEY = dg.AssetKey(["frazil", "orders", "payments"])
DEAD = dg.AssetKey(["frazil", "orders", "payments_dead"])
SMALL = table_of(*[partition(*[MB] * 50, name=f"day=2026-01-{day:02}") for day in range(1, 31)])
GOOD = table_of(partition(*[128 * MB] * 9))


def test_every_number_is_there_every_time() -> None:
    numbers = {name for name, value in health_metadata(table_of(), score(table_of(), policy())).items() if value == 0}
    numbers.add("health")
    for facts in (SMALL, GOOD):
        told = health_metadata(facts, score(facts, policy()))
        assert {name for name, value in told.items() if isinstance(value, (int, float))} == numbers
    told = health_metadata(SMALL, score(SMALL, policy()))
    assert (told["health"], told["health_lost_small_files"], told["small_files"]) == (60, 40, 1_500)
    assert (told["data_files"], told["table_bytes"], told["average_file_bytes"]) == (1_500, 1_500 * MB, MB)
    assert told["largest_small_files_of_a_partition"] == 50


def test_the_histogram() -> None:
    assert histogram_markdown([partition(0, 1, MB, 4 * MB), partition(128 * MB, 2048 * MB)]).splitlines() == [
        "| size | data files | in all |",
        "|---|---:|---:|",
        "| below 1.0 MiB | 2 | 1 bytes |",
        "| 1.0 MiB – 4.0 MiB | 1 | 1.0 MiB |",
        "| 4.0 MiB – 16 MiB | 1 | 4.0 MiB |",
        "| 16 MiB – 64 MiB | 0 | 0 bytes |",
        "| 64 MiB – 256 MiB | 1 | 128 MiB |",
        "| 256 MiB and more | 1 | 2.0 GiB |",
    ]


def test_the_worst_partitions_come_first() -> None:
    some = [partition(MB, MB, name="a|b"), partition(MB, name="c"), partition(*[MB] * 3, name="d", delete_files=2)]
    assert partitions_markdown(some, 16 * MB).splitlines()[2:] == [
        "| d | 3 | 3 | 3.0 MiB | 2 |",
        "| a\\|b | 2 | 2 | 2.0 MiB | 0 |",
    ]
    assert partitions_markdown([partition(MB, MB)], 16 * MB) == "", "a table without partitions"
    assert partitions_markdown(SMALL.partitions or (), 16 * MB).splitlines()[-1] == "| 20 more | | | | |"


def test_the_verdict() -> None:
    good = health_result(GOOD, score(GOOD, policy()), KEY)
    assert good.passed and good.description == "Health 100 of 100."
    assert (good.asset_key, good.check_name) == (KEY, TABLE_HEALTH)
    poor = health_evaluation(SMALL, score(SMALL, policy()), KEY)
    assert (poor.passed, poor.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert poor.description == (
        "Health 60 of 100. Small files −40: 1,500 of 1,500 data files of 1.0 MiB on average are below 16 MiB; merged, "
        "there would be 1,470 files fewer. Next: frazil maintain orders.payments --plan"
    )
    bad = table_of(*(SMALL.partitions or ()), snapshots=9_000, manifests=900)
    found = health_result(bad, score(bad, policy()), KEY)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)


def test_a_branch_that_grows_is_a_warning_whatever_the_score() -> None:
    branch = BranchFacts("audit", 900, 900 * MB, 800, 800 * MB, 10, MB)
    grown = replace(GOOD, branches=(branch,), streams=("payments",))
    planned = plan(grown, policy(), MaintenanceHistory(), grown.measured_at)
    found = health_result(grown, score(grown, policy()), KEY, planned)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (found.description or "").startswith("Health 100 of 100. Branch audit keeps 800 files of 800 MiB that main")
    assert "Next: frazil stop payments, frazil publish payments, drop the branch" in (found.description or "")
    assert "Branch audit keeps" in str(found.metadata["left_as_it_is"].value)
    told = health_evaluation(grown, score(grown, policy()), KEY, planned.branches)
    assert (told.passed, told.description) == (False, found.description)
    assert health_evaluation(grown, score(grown, policy()), KEY).passed


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(deployment_in(tmp_path, "payments"), None)


def test_executed_from_the_ui(deployment: Deployment) -> None:
    with connect_catalog(deployment.prepared_settings()) as catalog:
        catalog.create_namespace_if_not_exists("orders")
        table = catalog.create_table("orders.payments", SCHEMA, properties={"frazil.stamp.payments": "{}"})
        append(table, [file_of(MB) for _ in range(100)])
    (spec,) = deployment.streams()[0]
    paths = DeploymentResource.of(deployment)
    defs = dg.Definitions(
        assets=[dg.AssetSpec(KEY), dg.AssetSpec(DEAD)],
        asset_checks=[health_checks(spec, [KEY, DEAD])],
        resources={"deployment": paths, "catalog": CatalogResource(deployment=paths)},
        executor=dg.in_process_executor,
    )
    job = defs.resolve_implicit_global_asset_job_def()
    checks = {dg.AssetCheckKey(key, TABLE_HEALTH) for key in (KEY, DEAD)}
    with dg.DagsterInstance.ephemeral() as instance:
        subset = job.get_subset(asset_selection=set(), asset_check_selection=checks)
        result = subset.execute_in_process(instance=instance)
    found = {each.asset_key: each for each in result.get_asset_check_evaluations()}
    assert (found[DEAD].passed, found[DEAD].description) == (True, "There is no table yet.")
    poor = found[KEY]
    assert (poor.passed, poor.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert poor.metadata["health"].value == 60 and poor.metadata["small_files"].value == 100
    assert poor.metadata["planned_bytes"].value == 100 * MB
    assert "| compact |" in str(poor.metadata["plan"].value)
    assert "- expire: " in str(poor.metadata["left_as_it_is"].value)
