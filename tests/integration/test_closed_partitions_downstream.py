"""What is downstream of a closed hour starts by itself, once, when the hour is complete: Dagster's own daemon decides.

The asset is the one that the documentation shows, in a code location of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assets.closed_partitions import closed_key
from orchestration.cli.dev.services import DagsterServices
from resources.deployment import Deployment
from tests.helpers.event_stream import EventStream, hour, write_file
from tests.helpers.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
LOCATION, AUTOMATION = "reports", "default_automation_condition_sensor"
REST = f"""
defs = dg.Definitions(
    assets=[revenue_by_hour],
    sensors=[
        dg.AutomationConditionSensorDefinition(
            "{AUTOMATION}",
            target=dg.AssetSelection.all(),
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=5,
        )
    ],
)
"""
WORKSPACE = f"""\
load_from:
  - python_module: {{module_name: orchestration.definitions, location_name: frazil}}
  - python_file: {{relative_path: reports.py, location_name: {LOCATION}}}
"""
TICKS = """query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) {
  ... on Sensor { sensorState { ticks(limit: 1) { status timestamp } } } } }"""
RUNS = "query { runsOrError { ... on Runs { results { status assetSelection { path } tags { key value } } } } }"
PARTITIONS = """query($key: AssetKeyInput!) { assetOrError(assetKey: $key) {
  ... on Asset { assetMaterializations { partition } } } }"""


class Place:
    """A stream whose hours close, what its driver commits, and Dagster's services."""

    def __init__(self, home: Path) -> None:
        write_file(home, besides="trigger: available_now\n")
        (home / "workspace.yaml").write_text(WORKSPACE)
        (home / "reports.py").write_text(f"import dagster as dg\n\n{documented_asset()}\n{REST}")
        deployment = Deployment.at(home)
        settings, spec = deployment.prepared_settings(), deployment.stream("payments")
        self.stream: EventStream = EventStream(settings, spec)
        self.closed: list[str] = list(closed_key(settings, spec).path)
        self.services: DagsterServices = DagsterServices(deployment)

    def ticked(self, location: str, sensor: str, after: float = 0.0) -> bool:
        """Whether a tick of a sensor that began after this time has ended."""
        selector = {"repositoryLocationName": location, "repositoryName": "__repository__", "sensorName": sensor}
        found = self.services.api.ask(TICKS, selector=selector)["sensorOrError"]
        ticks = found.get("sensorState", {}).get("ticks", [])
        return bool(ticks) and ticks[0]["status"] != "STARTED" and ticks[0]["timestamp"] > after

    def partitions(self, key: list[str]) -> list[str]:
        """The partitions of an asset that were materialized, each as often as it was."""
        found = self.services.api.ask(PARTITIONS, key={"path": key})["assetOrError"]
        return [each["partition"] for each in found.get("assetMaterializations", [])]

    def runs(self) -> list[tuple[str, str]]:
        """Partition and status of the runs of what is downstream."""
        found: list[dict[str, Any]] = self.services.api.ask(RUNS)["runsOrError"]["results"]
        mine = [each for each in found if {"path": ["revenue_by_hour"]} in (each["assetSelection"] or ())]
        return [
            ({tag["key"]: tag["value"] for tag in each["tags"]}["dagster/partition"], each["status"]) for each in mine
        ]


def documented_asset() -> str:
    """The asset as `docs/event-time.md` has it."""
    found = re.search(r"```python\n(@dg\.asset\(.*?)```", (ROOT / "docs" / "event-time.md").read_text(), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.services.start()
    try:
        yield made
    finally:
        made.services.stop()


def test_downstream_runs_once_for_an_hour_that_is_complete_and_for_no_other(place: Place) -> None:
    # The watermark is past the hour's end, and the dead letters lack what the batch says that they get.
    place.stream.land([hour(10, 5), hour(11, 5)], hour(11, 1), letters=1)
    wait_for(lambda: _answers(place), "the code locations", 120)
    for location, sensor in (("frazil", "frazil_closed_partitions"), (LOCATION, AUTOMATION)):
        wait_for(lambda location=location, sensor=sensor: place.ticked(location, sensor), f"a tick of {sensor}", 120)
    assert place.partitions(place.closed) == [] and place.runs() == []
    # The next batch proves the one before.
    place.stream.land([hour(11, 30)], hour(11, 20))
    wait_for(lambda: place.runs() == [("2026-03-01-10:00", "SUCCESS")], "the run of the hour that is complete", 150)
    assert place.partitions(place.closed) == ["2026-03-01-10:00"]
    assert place.partitions(["revenue_by_hour"]) == ["2026-03-01-10:00"]
    # It is not asked for again.
    seen = _newest(place)
    wait_for(lambda: place.ticked(LOCATION, AUTOMATION, seen), "another look at the conditions", 60)
    assert place.runs() == [("2026-03-01-10:00", "SUCCESS")]


def _answers(place: Place) -> bool:
    return (
        place.services.api.find(place.closed[:-1]) is not None
        and place.services.api.find(["revenue_by_hour"]) is not None
    )


def _newest(place: Place) -> float:
    selector = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__", "sensorName": AUTOMATION}
    return place.services.api.ask(TICKS, selector=selector)["sensorOrError"]["sensorState"]["ticks"][0]["timestamp"]
