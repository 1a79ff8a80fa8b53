"""`frazil demo` as a user sees it: interrupted, and once more to its end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.local.broker.broker import LocalBroker
from jobs.tables.commit.history.stamp_history import history
from orchestration.cli.local.demo.report import table_sums
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.integration.marked import ROOT, Marked

pytestmark = pytest.mark.integration


@pytest.fixture
def demo_home(tmp_path: Path) -> Path:
    home = tmp_path / "demo"
    shutil.copytree(ROOT / "streams", home / "streams")
    return home


@pytest.mark.timeout(1500)
def test_the_demo_adds_up_also_after_one_that_was_interrupted(demo_home: Path) -> None:
    first = Marked(demo_home, ["demo", "--payments", "4000"])
    wait_for(lambda: first.ended() or bool(first.living("SparkSubmit")), "the JVM of Dagster's run", 200)
    assert not first.ended(), first.finish(5)
    first.interrupt()
    status, _, errors = first.finish(300)
    assert status == 130, errors
    assert first.living() == []

    second = Marked(demo_home, ["demo", "--once", "--payments", "3000"])
    status, output, errors = second.finish(600)
    assert status == 0, output + errors
    assert "Produced = landed + dead letters + tombstones." in output
    assert second.living() == []

    deployment = Deployment.at(demo_home)
    spec = deployment.stream("payments")
    with LocalBroker(demo_home / ".frazil" / "broker"), connect_catalog(deployment.settings()) as catalog:
        sums = table_sums(catalog, spec, KafkaLog(deployment.settings().kafka))
        stamp = history(catalog.load_table(spec.table.name).metadata, spec.stream).newest
    assert sums.right
    # The first one may have been interrupted before the broker had all of its payments.
    assert 3000 < sums.produced <= 7000
    assert sums.distinct == sums.rows + sums.dead
    assert stamp is not None
    assert stamp.totals.read == sums.produced
