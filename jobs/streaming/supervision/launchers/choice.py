"""Choice of a launcher: for a driver that is to be started, by the settings; for one that was, by its documents."""

from __future__ import annotations

import time
from pathlib import Path

from jobs.config.services.launcher_name import LauncherName
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.launchers.launcher import Launcher, Look, Looker
from jobs.streaming.supervision.launchers.local_process import LocalProcesses

# So long nobody is asked again who has just not answered: a tick that looks at many streams would wait for each.
AWAY_SECONDS = 10.0
_away: dict[tuple[Path, LauncherName], tuple[float, Look]] = {}


def chosen_launcher(settings: Settings) -> Launcher:
    """What starts the drivers of a deployment."""
    return _launcher(settings.drivers.launcher, settings)


def launcher_of(process: LaunchedProcess, settings: Settings) -> Launcher | None:
    """What can look at a driver that was launched, and end it; None if it is a process of another machine."""
    if process.remote:
        return _launcher(process.launcher, settings)
    return LocalProcesses() if process.process_lives() is not None else None


def looker(settings: Settings) -> Looker:
    """What looks at drivers, by whatever has launched them."""

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
    # Imported here: most deployments start processes, and these bring a client of HTTP.
    if name == "spark_submit":
        from jobs.streaming.supervision.launchers.spark_submit import SparkSubmissions

        return SparkSubmissions(settings)
    if name == "kubernetes":
        from jobs.streaming.supervision.launchers.kubernetes import KubernetesPods

        return KubernetesPods(settings)
    return LocalProcesses()
