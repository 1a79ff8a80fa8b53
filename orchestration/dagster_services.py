"""Dagster's webserver and daemon on a deployment: started together, ended together."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import orchestration
from jobs.errors import FrazilError
from orchestration.children import Child, end_all
from orchestration.dagster_instance import WORKSPACE, make_instance
from orchestration.graphql import Dagster
from orchestration.ports import PortClaim
from resources.deployment import HOME_VARIABLE, SETTINGS_VARIABLE, Deployment


class DagsterServices:
    """The two services of one deployment.

    Args:
        deployment: Whose streams they show.
        port: Of the web UI; None for 3000, or a free one if that is taken.
    """

    def __init__(self, deployment: Deployment, port: int | None = None) -> None:
        if importlib.util.find_spec("dagster_webserver") is None:
            raise FrazilError("Dagster's web UI is not installed.", fix="pip install 'frazil[ui]'")
        self._deployment: Deployment = deployment
        self._children: list[Child] = []
        self._serving: dict[str, Child] = {}
        self._claim: PortClaim = PortClaim(port)
        self.port: int = self._claim.port
        self.home: Path = deployment.embedded / "dagster"

    @property
    def url(self) -> str:
        """Where a browser finds the UI."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> Dagster:
        """The services' own API."""
        return Dagster(self.url)

    def start(self) -> None:
        """Start both; returns before they answer."""
        make_instance(self.home)
        self.start_webserver()
        self.start_daemon()

    def start_webserver(self) -> Child:
        """Start the webserver, the first time or in place of one that has ended."""
        command = ["dagster_webserver", *self.code(), "-h", "127.0.0.1", "-p", str(self.port)]
        return self._start("webserver", command)

    def start_daemon(self) -> Child:
        """Start the daemon, the first time or in place of one that has ended."""
        return self._start("daemon", ["dagster._daemon", "run", *self.code()])

    def code(self) -> list[str]:
        """Where the code is: as the deployment says, else as it was set up, else by the module's name."""
        places = (self._deployment.home / WORKSPACE, self.home / WORKSPACE)
        found = next((place for place in places if place.exists()), None)
        return ["-w", str(found)] if found is not None else ["-m", "orchestration.definitions"]

    def check(self) -> None:
        """Raise if one of them has ended.

        Raises:
            FrazilError: With the end of its log.
        """
        for child in self._serving.values():
            child.check()

    def stop(self) -> None:
        """End the runs that are under way, then both services, and whatever they started."""
        if self._children:
            self.api.terminate_runs(deadline_seconds=8.0)
        end_all(self._children)
        self._children.clear()
        self._serving.clear()
        self._claim.release()

    def _start(self, name: str, module: list[str]) -> Child:
        env = {
            "DAGSTER_HOME": str(self.home),
            HOME_VARIABLE: str(self._deployment.home),
            "PYTHONPATH": _python_path(),
            "PYTHONUNBUFFERED": "1",
        }
        if self._deployment.settings_file is not None:
            env[SETTINGS_VARIABLE] = str(self._deployment.settings_file)
        command = [sys.executable, "-m", *module]
        log = self.home / f"{name}.log"
        child = Child(f"Dagster's {name}", command, log=log, env=env, cwd=self._deployment.home)
        self._serving[name] = child
        # One that was replaced may have left something behind.
        self._children.append(child)
        return child


def _python_path() -> str:
    root = str(Path(orchestration.__path__[0]).resolve().parent)
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
