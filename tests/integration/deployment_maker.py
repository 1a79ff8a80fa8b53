"""Maker of a deployment that is archived for the tests of later releases.

Only commands of the release that is checked out touch the deployment, as if an operator ran them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jobs.config.settings.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
KILLED = -signal.SIGKILL
ARCHIVE, EXPECTED = "deployment.tar.xz", "expected.json"

_BOOT = b"00000000-1111-2222-3333-444444444444"
# Logs, Spark's own files and Dagster's storage: no stream depends on them.
_LEFT_OUT = {"disguise", "logs", "spark", "spark.log", "dagster", "broker.out", "log4j2.properties", "lock"}


@dataclass(frozen=True, slots=True)
class DeploymentMaker:
    """Runs the release's commands on a deployment, and packs what they left.

    Attributes:
        home: Folder of the deployment. Its tables name their files by absolute paths, so it has to be unpacked there.
        host: Host name that the processes of the deployment see in place of this machine's.
    """

    home: Path
    host: str

    @contextlib.contextmanager
    def deployment(self, settings: Mapping[str, Any], streams: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Make a deployment and start its broker; yields the broker's address and removes the deployment at the end.

        Args:
            settings: Document of `frazil.yaml`.
            streams: Document of each stream's file, without the key `stream`.
        """
        self.home.mkdir(mode=0o700)
        try:
            (self.home / "disguise").mkdir()
            disguise = f"import socket\nsocket.gethostname = lambda: {self.host!r}\n"
            (self.home / "disguise/sitecustomize.py").write_text(disguise)
            (self.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
            (self.home / "streams").mkdir()
            for stream, document in streams.items():
                spec = {"stream": stream, **document}
                (self.home / "streams" / f"{stream}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
            self.frazil("up")
            yield (self.home / ".frazil/broker/address").read_text()
        except BaseException:
            self.frazil("stop", "--all", expect=None)
            self.frazil("down", expect=None)
            left = tempfile.mkdtemp(prefix="frazil-not-made-")
            shutil.copytree(self.home, left, dirs_exist_ok=True)
            print(f"What was made so far is in {left}.", file=sys.stderr)
            raise
        finally:
            shutil.rmtree(self.home)

    def frazil(self, *arguments: str, steps: str = "", expect: int | None = 0) -> str:
        """Run a command of the release on the deployment; returns its standard output.

        Args:
            steps: Failpoints at which the command, or the driver that it starts, is killed or stopped.
            expect: Exit status of the command; None for any.
        """
        command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(self.home), *arguments]
        # Every Python process of the deployment imports the disguise, which hides this machine's name.
        path = f"{self.home / 'disguise'}{os.pathsep}{ROOT}"
        env = {**os.environ, "PYTHONPATH": path, "LOGNAME": "operator", "FRAZIL_STEPS": steps}
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - began:5.1f} s  frazil {' '.join(arguments)}", flush=True)
        if expect is not None and done.returncode != expect:
            raise AssertionError(f"exit {done.returncode}, expected {expect}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def facts(self, *arguments: str, expect: int | None = 0) -> dict[str, Any]:
        """Document that a command prints with `--json`."""
        return json.loads(self.frazil(*arguments, "--json", expect=expect))

    def status(self, stream: str) -> dict[str, Any]:
        """Status document of a stream."""
        (document,) = self.facts("status", stream)["streams"]
        return document

    def forget_boot(self) -> None:
        """Replace this machine's boot id in the state."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
        for path in load_settings(None, home=self.home).state.rglob("*.json"):
            path.write_bytes(path.read_bytes().replace(boot, _BOOT))

    def archive(self, target: Path, expected: Mapping[str, Any]) -> None:
        """Stop the broker, and write the archive and the expected documents into the folder `target`."""
        self.frazil("down")
        target.mkdir(parents=True, exist_ok=True)
        (target / EXPECTED).write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        with tarfile.open(target / ARCHIVE, "w:xz", preset=9) as file:
            for path in sorted(self.home.iterdir()):
                file.add(path, path.name, filter=_archived)
        print(f"{target / ARCHIVE}: {(target / ARCHIVE).stat().st_size:,} bytes")


def session_members(session: int) -> dict[int, str]:
    """Processes of a session that are alive, with the kernel's letters of their states."""
    members: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, leader = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(leader) == session and state != "Z":
                members[int(folder.name)] = state
    return members


def _archived(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(entry.name)
    if _LEFT_OUT & set(path.parts) or path.name.startswith("broker.log"):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
