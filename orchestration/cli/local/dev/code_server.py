"""Code server of `frazil dev`: one process that has loaded the definitions, for Dagster's webserver and its daemon.

With `python_module` in a workspace each of the two starts a code server of its own, and the daemon another one every
minute. A workspace with `grpc_server` has them share one. The code location keeps its name, as Dagster keeps by it what
was switched off, and the cursors of sensors.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import yaml

MODULE = "orchestration.definitions"
_LOADING_SECONDS = 300


class CodeServerPlace:
    """The address of a code server, and the workspace file that names it, in a folder for this user alone.

    Args:
        location_name: The name of the code location.
    """

    def __init__(self, location_name: str) -> None:
        # A socket's path has some hundred characters at most, so that it is not in the deployment.
        self._folder: Path = Path(tempfile.mkdtemp(prefix="frazil-code-"))
        self._location_name: str = location_name
        self.socket: Path = self._folder / "socket"
        self.workspace: Path = self._folder / "workspace.yaml"
        entry = {"grpc_server": {"socket": str(self.socket), "location_name": location_name}}
        self.workspace.write_text(yaml.safe_dump({"load_from": [entry]}))

    def command(self) -> list[str]:
        """The server's command, after `python -m`: it reloads the definitions when Dagster's UI asks for that."""
        options = ["--socket", str(self.socket), "--location-name", self._location_name]
        # With this Python also for what it starts, whatever `dagster` in PATH is.
        options += ["--use-python-environment-entry-point", "--inject-env-vars-from-instance"]
        return ["dagster", "code-server", "start", "-m", MODULE, *options, "--startup-timeout", str(_LOADING_SECONDS)]

    def answers(self) -> bool:
        """Whether the server listens, which it does once the definitions are loaded, or cannot be."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
        return True

    def remove(self) -> None:
        """Remove the folder; the server has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)


def shared_location(workspace: Path | None) -> str | None:
    """The name of the code location if a workspace has frazil's definitions and nothing else; None otherwise.

    Args:
        workspace: A workspace file; None if the definitions are loaded by the module's name.
    """
    if workspace is None:
        # Dagster's name for a module without another one.
        return MODULE
    try:
        document = yaml.safe_load(workspace.read_text())
    except (OSError, yaml.YAMLError):
        # Dagster reports what is wrong with it.
        return None
    entries: Any = document.get("load_from") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) != 1 or len(document) != 1:
        return None
    entry: Any = entries[0]
    module = entry.get("python_module") if isinstance(entry, dict) and len(entry) == 1 else None
    if module == MODULE:
        return MODULE
    if not isinstance(module, dict) or module.keys() - {"module_name", "location_name"}:
        return None
    if module.get("module_name") != MODULE:
        return None
    name = module.get("location_name", MODULE)
    return name if isinstance(name, str) else None
