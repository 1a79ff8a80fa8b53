"""Orders of drivers, and settings of remote launchers, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.supervision.documents.launches import Launch
from jobs.streaming.supervision.launchers.launcher import DriverOrder

STATE = {"store": "s3://lake-state/frazil", "properties": {"s3.region": "eu-central-1"}}


def settings_with(folder: Path, drivers: dict[str, Any], **others: Any) -> Settings:
    """The settings of a deployment with this block."""
    (folder / "frazil.yaml").write_text(yaml.safe_dump({"state": STATE, "drivers": drivers} | others))
    return load_settings(None, home=folder)


def order(home: Path, label: str = "orders", attempt: int = 3, handle: str = "") -> DriverOrder:
    """A driver that is to be started."""
    launch = Launch(attempt, "g", "streams/orders.yaml", 0, 0.0, handle=handle)
    what = ("--group", label.partition(":")[2]) if ":" in label else ("--stream", label)
    module = "jobs.streaming.groups.main" if ":" in label else "jobs.streaming.driver.main"
    given = ("--home", str(home), *what)
    return DriverOrder(label, launch, home, ("python", "-m", module), given)
