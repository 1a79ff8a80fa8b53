"""Standalone cluster of Spark for tests: a master and workers as processes on free ports of the loopback.

The workers are as other machines would be: of the driver's environment they have nothing, their home and working
folders lie elsewhere, and the secret by which Spark's processes know each other is in a file of the cluster's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tarfile
import urllib.request
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.base.system.ports import free_ports
from jobs.base.system.processes import start_time, stop_process
from jobs.clients.install.preflight import pyspark_folder
from tests.helpers.waiting import wait_for

CLUSTER_SECRET = "a-cluster-secret-of-the-tests"
SECRET_VARIABLE = "FRAZIL_TEST_CLUSTER_SECRET"
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_CLASSES = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}


@dataclass
class SparkCluster:
    """A master and its workers, each of one core.

    Attributes:
        folder: Folder with the files of the cluster's processes; each worker has a folder of its own in it.
        port: Port of the master, which it keeps after a restart.
        ui_port: Port of the master's page and JSON.
        memory: Memory of a worker.
        given: Further environment of the workers, for drivers that they run.
    """

    folder: Path
    port: int
    ui_port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    memory: str = "600m"
    given: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The URL for `spark.master`."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def conf(self) -> dict[str, str]:
        """The `spark.conf` of a deployment for this cluster."""
        return {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _QUICK,
            "spark.authenticate": "true",
            "spark.authenticate.secret": f"${{env:{SECRET_VARIABLE}}}",
            "spark.network.crypto.enabled": "true",
        }

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start the `master`, or a worker such as `worker1`; returns at once."""
        kind, folder = name.rstrip("0123456789"), self.folder / name
        for each in (folder, folder / "home", folder / "local"):
            each.mkdir(parents=True, exist_ok=True)
        defaults = folder / "spark-defaults.conf"
        defaults.touch(mode=0o600)
        defaults.write_text("".join(f"{key} {value}\n" for key, value in self._defaults(folder).items()))
        own = (
            ["--port", str(self.port), "--webui-port", str(self.ui_port)]
            if kind == "master"
            else [
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                self.memory,
                "--work-dir",
                str(folder / "work"),
                self.url,
            ]
        )
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(str(pyspark_folder() / "bin" / "spark-class"), _CLASSES[kind], "--host", "127.0.0.1"),
                    *("--properties-file", str(defaults), *own),
                ],
                env={
                    **{key: os.environ[key] for key in ("PATH", "JAVA_HOME", "LANG") if key in os.environ},
                    "HOME": str(folder / "home"),
                    "SPARK_HOME": str(pyspark_folder()),
                    "SPARK_LOCAL_DIRS": str(folder / "local"),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "160m",
                    "SPARK_DAEMON_JAVA_OPTS": _QUICK,
                    **(self.given if kind == "worker" else {}),
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def _defaults(self, folder: Path) -> dict[str, str]:
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": CLUSTER_SECRET,
            "spark.network.crypto.enabled": "true",
            # A master that is started again knows workers and applications of the one before.
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(folder / "recovery"),
        }

    def kill(self, name: str) -> None:
        """End a process with SIGKILL, and what it has started stays."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def state(self) -> dict[str, Any]:
        """The state that the master reports."""
        return dict(json.loads(self.page("/json/")))

    def page(self, path: str) -> str:
        """A page of the master's."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def alive_workers(self) -> int:
        """Number of the master's workers; 0 while it does not answer, or does not have all its pages yet."""
        with contextlib.suppress(OSError, json.JSONDecodeError):
            return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])
        return 0

    def executors(self) -> dict[int, str]:
        """Processes of executors by their pid, each with its command line."""
        return {
            pid: line
            for pid, line in command_lines().items()
            if "CoarseGrainedExecutorBackend" in line and str(self.folder) in folder_of(pid)
        }

    def python_workers(self) -> list[int]:
        """Processes in which Python's tasks run, and those that have forked them."""
        return [
            pid
            for pid, line in command_lines().items()
            if "jobs.clients.spark.worker_daemon" in line and str(self.folder) in folder_of(pid)
        ]

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master has so many workers."""
        wait_for(lambda: self.alive_workers() == count, f"{count} workers of Spark")


def command_lines() -> dict[int, str]:
    """The command line of each process of this machine that can be looked at."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def folder_of(pid: int) -> str:
    """The working folder of a process; empty if it has gone."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""


def environment_of(pid: int) -> dict[str, str]:
    """Environment of a process; empty if the process has ended."""
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(each.split("=", 1) for each in found if "=" in each)
    return {}


def packed_environment(folder: Path) -> Path:
    """An archive of a small Python environment, which finds its packages where this process has them.

    What executors need of it is that it runs from wherever it is unpacked.
    """
    made = folder / "environment"
    venv.create(made, symlinks=True, with_pip=False)
    (packages,) = made.glob("lib/python3*/site-packages")
    (packages / "here.pth").write_text(f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    with tarfile.open(archive := folder / "environment.tar.gz", "w:gz") as packed:
        packed.add(made, arcname=".")
    shutil.rmtree(made)
    return archive


@contextlib.contextmanager
def spark_cluster(
    folder: Path, *names: str, memory: str = "600m", given: dict[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Run a master and workers, or what is named of them, until the end, and end what they have started."""
    port, ui_port = free_ports(2)
    cluster = SparkCluster(folder, port, ui_port, memory=memory, given=given or {})
    try:
        for name in names:
            cluster.start(name)
        yield cluster
    finally:
        for process in cluster.processes.values():
            stop_process(process.pid, start_time(process.pid), 3.0)
            process.wait()
        for pid in cluster.executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
