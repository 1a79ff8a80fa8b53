"""Dagster instance of a deployment, made by the command that needs it first."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import orchestration
from jobs.base.errors import FrazilError
from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import keep_private, private_folder
from resources.deployment import Deployment

if TYPE_CHECKING:
    import dagster as dg

HOME_VARIABLE = "DAGSTER_HOME"
DATABASES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
_MAKING_SECONDS = 180.0
WORKSPACE = "workspace.yaml"
_WORKSPACE = """\
# The code location, by the name that it has everywhere.
load_from:
  - python_module:
      module_name: orchestration.definitions
      location_name: frazil
"""


def dagster_home(deployment: Deployment) -> Path:
    """The folder of the instance: DAGSTER_HOME if that is set, else `.frazil/dagster` of the deployment."""
    given = os.environ.get(HOME_VARIABLE)
    return Path(given).expanduser() if given else deployment.embedded / "dagster"


def dagster_instance(deployment: Deployment) -> dg.DagsterInstance:
    """The instance of a deployment; the caller disposes of it, as a context manager.

    Raises:
        Exception: Whatever Dagster raises if its storage cannot be opened.
    """
    import dagster as dg

    home = dagster_home(deployment)
    if home == deployment.embedded / "dagster":
        make_instance(home)
    return dg.DagsterInstance.from_config(str(home))


def make_instance(home: Path) -> None:
    """Write `dagster.yaml` unless it exists, and make the databases.

    Two processes that both make them get in each other's way, so that one waits for the other. A database server keeps
    them apart by itself: where `dagster.yaml` names one, Dagster makes its tables when it first looks at them.

    Raises:
        FrazilError: The storage that `dagster.yaml` names is incomplete, or its client is not installed.
    """
    keep_private(private_folder(home))
    settings = home / "dagster.yaml"
    if settings.exists() and (_on_server(settings) or all((home / name).exists() for name in DATABASES)):
        return
    import dagster as dg

    with exclusive(home / "making.lock", deadline_seconds=_MAKING_SECONDS):
        if not settings.exists():
            # Before the settings, which say that an instance has been set up: one that was without it goes by the name
            # of its module, and its schedules and sensors by that name.
            (home / WORKSPACE).write_text(_WORKSPACE)
            settings.write_text(importlib.resources.files(orchestration).joinpath("dagster.yaml").read_text())
        with dg.DagsterInstance.from_config(str(home)) as instance:
            # Each is made when it is first looked at.
            for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
                if storage is None:
                    raise FrazilError(f"Dagster has no storage in {home}.", fix=f"read {settings}")


def _on_server(settings: Path) -> bool:
    """Whether the storage is a database server's, and not in files of this machine."""
    try:
        document = yaml.safe_load(settings.read_text())
    except yaml.YAMLError:
        # Dagster's own message says what is wrong, and where.
        return False
    storage = document.get("storage") if isinstance(document, dict) else None
    if not isinstance(storage, dict) or "sqlite" in storage:
        return False
    if "postgres" in storage and importlib.util.find_spec("dagster_postgres") is None:
        raise FrazilError(
            f"{settings} puts Dagster's storage in PostgreSQL, and Dagster's client for it is not installed.",
            fix="pip install 'frazil[dagster-postgres]'",
        )
    if _without_psycopg2(storage.get("postgres")):
        raise FrazilError(
            f"{settings} names no driver for PostgreSQL. SQLAlchemy {version('sqlalchemy')} would take psycopg 3, on "
            "which Dagster fails with its first event.",
            fix=f"write scheme: postgresql+psycopg2 below postgres_db in {settings}, or begin postgres_url with "
            "postgresql+psycopg2://",
        )
    return True


def _without_psycopg2(postgres: Any) -> bool:
    """Whether SQLAlchemy chooses the driver for PostgreSQL, and chooses another than Dagster speaks to."""
    if not isinstance(postgres, dict) or tuple(map(int, version("sqlalchemy").split(".")[:2])) < (2, 1):
        return False
    database, url = postgres.get("postgres_db"), postgres.get("postgres_url")
    if isinstance(database, dict):
        return database.get("scheme", "postgresql") == "postgresql"
    # One that a variable of the environment holds is not looked into.
    return isinstance(url, str) and url.startswith("postgresql://")
