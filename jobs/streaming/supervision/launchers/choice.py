"""Choice of a launcher: by the settings for a new driver, by its documents for an existing one."""

from __future__ import annotations

import time
from pathlib import Path

from jobs.config.services.launcher_name import LauncherName
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.launchers.launcher import Launcher, Look, Looker
from jobs.streaming.supervision.launchers.local_process import LocalProcesses

# Time for which an unanswering launcher is not asked again; otherwise a tick over many streams would wait for each.
AWAY_SECONDS = 10.0
_away: dict[tuple[Path, LauncherName], tuple[float, Look]] = {}


def chosen_launcher(settings: Settings) -> Launcher:
    """Launcher of a deployment's new drivers."""
    return _launcher(settings.drivers.launcher, settings)


def launcher_of(process: LaunchedProcess, settings: Settings) -> Launcher | None:
    """Launcher that can see and end an existing driver; None if it is a process of another machine."""
    if process.remote:
        return _launcher(process.launcher, settings)
    return LocalProcesses() if process.process_lives() is not None else None


def looker(settings: Settings) -> Looker:
    """Function that looks at drivers of any launcher."""

    def look(process: LaunchedProcess) -> Look:
        launcher = launcher_of(process, settings)
        if launcher is None:
            return Look("unknown")
        key = settings.home, launcher.name
        until, said = _away.get(key, (0.0, Look("unknown")))
        if time.monotonic() < until:
            return said
        looked = launcher.look(process)
        if looked.away:
            _away[key] = (time.monotonic() + AWAY_SECONDS, looked)
        return looked

    return look


def _launcher(name: LauncherName, settings: Settings) -> Launcher:
    # Imported here: most deployments start processes, and these modules import an HTTP client.
    if name == "spark_submit":
        from jobs.streaming.supervision.launchers.spark_submit import SparkSubmissions

        return SparkSubmissions(settings)
    if name == "kubernetes":
        from jobs.streaming.supervision.launchers.kubernetes import KubernetesPods

        return KubernetesPods(settings)
    return LocalProcesses()
