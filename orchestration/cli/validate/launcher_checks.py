"""Checks of what starts drivers: whether it answers, and what of the settings is of this machine alone."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.errors import FrazilError
from jobs.spec.settings import Settings
from jobs.supervise.launchers.choice import chosen_launcher
from jobs.write.locations import local_folder
from orchestration.cli.validate.findings import Finding


def check_launcher(settings: Settings) -> Iterator[Finding]:
    """What can be said of a launcher that starts drivers elsewhere; nothing of processes of this machine."""
    if not settings.drivers.remote:
        return
    try:
        yield Finding(None, "drivers", "ok", chosen_launcher(settings).check())
    except FrazilError as problem:
        yield Finding(None, "drivers", "unchecked", problem.message, problem.fix)
    if settings.kafka.is_embedded:
        sentence = "the local broker listens on 127.0.0.1, where drivers on other machines do not find it"
        yield Finding(None, "drivers", "wrong", sentence, "set kafka.bootstrap_servers in frazil.yaml")
    warehouse = settings.catalog.properties.get("warehouse")
    if isinstance(warehouse, str) and (folder := local_folder(warehouse)) is not None:
        sentence = f"the warehouse is the folder {folder}, which every machine that runs drivers must have mounted"
        yield Finding(None, "drivers", "unchecked", sentence, "put catalog.properties.warehouse into an object store")
