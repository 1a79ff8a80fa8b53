"""A tick of the sensor of closed hours in a process of its own, stored in the order in which Dagster's daemon does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.sensors.closed_partitions import closed_partitions_sensor
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import connections


def tick(home: str, reported: int | None = None) -> None:
    """Evaluate the sensor; tell Dagster of each event, and then keep the cursor.

    Args:
        home: The deployment's folder; Dagster's record is in its `dagster`, the cursor in its `cursor.json`.
        reported: The process dies once so many events are reported; None: it does not.
    """
    folder, cursor = Path(home) / "dagster", Path(home) / "cursor.json"
    folder.mkdir(exist_ok=True)
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        before = cursor.read_text() if cursor.exists() else None
        resources = connections(Deployment.at(Path(home)))
        with dg.build_sensor_context(instance=instance, cursor=before, resources=resources) as context:
            result: Any = closed_partitions_sensor()(context)
        for number, event in enumerate(result.asset_events, start=1):
            instance.report_runless_asset_event(event)
            if number == reported:
                os.kill(os.getpid(), signal.SIGKILL)
        cursor.write_text(result.cursor or "")
