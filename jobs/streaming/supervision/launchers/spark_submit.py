"""Launcher of drivers on workers of a standalone Spark cluster, placed by its master.

`spark-submit` refuses Python in cluster mode there. So it submits Spark's own class that runs Python, `PythonRunner`,
and Python runs `submitted_driver`. The client's JVM gets only the driver's environment, as Spark passes it on, and
Spark's secret, if there is one, in the variable that Spark has for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from jobs.base.errors import FrazilError
from jobs.clients.install.preflight import pyspark_folder
from jobs.clients.spark.master import (
    is_local,
    master_of,
    standalone_addresses,
    unanswered,
)
from jobs.config.documents.secrets import reveal
from jobs.config.services.drivers import SparkSubmitSettings
from jobs.config.services.launcher_name import LauncherName
from jobs.config.settings.settings import SETTINGS_FILE, Settings
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE, driver_id
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.documents.waiting import wait_until
from jobs.streaming.supervision.launchers.driver_identity import KEEPER_OFF, LAUNCHER_VARIABLE
from jobs.streaming.supervision.launchers.launcher import DriverOrder, Look, NotLaunchedError

WRAPPER = "jobs.streaming.supervision.launchers.submitted_driver"
_RUNNER = "org.apache.spark.deploy.PythonRunner"
_SUBMIT, _CLIENT = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.deploy.Client"
_SUBMITTED = re.compile(r"submitted as (driver-[0-9]+-[0-9]+)")
_SECRET, _SECRET_VARIABLE = "spark.authenticate.secret", "_SPARK_AUTH_SECRET"
# Settings that the client needs to reach the master; the driver's own are in the deployment's file.
_OF_THE_WIRE = ("spark.authenticate", "spark.network.", "spark.rpc.", "spark.io.encryption.", "spark.ssl.")
_PAGE_SECONDS = 5.0
_ENDED_SECONDS = 120.0
_STATES: Mapping[str, str] = {
    "FINISHED": "it has ended",
    "FAILED": "it has ended with an error",
    "KILLED": "it was killed by the master's order",
    "ERROR": "its worker could not run it, or is lost",
}


@dataclass(frozen=True, slots=True)
class SparkSubmissions:
    """Submits drivers to the master of a standalone cluster, and reads their state from its web page.

    Args:
        settings: Settings of the deployment, with `drivers.spark_submit`.
    """

    settings: Settings

    @property
    def name(self) -> LauncherName:
        """Name in the settings."""
        return "spark_submit"

    @property
    def _chosen(self) -> SparkSubmitSettings:
        chosen = self.settings.drivers.spark_submit
        if chosen is None:
            raise FrazilError(
                f"A driver was submitted to Spark, and {SETTINGS_FILE} does not name its master any more.",
                fix=f"write drivers.spark_submit into {SETTINGS_FILE} again, until that driver has ended",
            )
        return chosen

    @property
    def master(self) -> str:
        """Address of the master.

        Raises:
            FrazilError: No setting names a standalone master.
        """
        master = self._chosen.master or master_of(self.settings)
        if is_local(master) or not standalone_addresses(master):
            raise FrazilError(
                f"drivers.launcher is spark_submit, and spark.master is {master}, to which no driver can be submitted.",
                fix=f"write drivers.spark_submit.master: spark://HOST:7077 into {SETTINGS_FILE}",
            )
        return master

    def check(self) -> str:
        """Check whether the master listens, and whether its page shows that it is active; see `Launcher`."""
        master = self.master
        self._require_master(master)
        self._page()
        return f"the master {master} takes drivers, and its page answers"

    def handle(self, label: str, attempt: int) -> str:
        """Empty: the master assigns the id."""
        return ""

    def start(self, order: DriverOrder) -> LaunchedProcess:
        """Submit a driver; see `Launcher`."""
        launch, master = order.launch, self.master
        self._require_master(master)
        text = self._run(self.submission(order, master), self._environment(order), until=_SUBMITTED)
        match = _SUBMITTED.search(text)
        if match is None:
            raise FrazilError(
                f"The driver of stream {order.label}: it is not known whether Spark's master {master} has taken the "
                f"submission:\n{_indented(text)}",
                fix="see the master's page; the next attempt is made five minutes after this one began",
            )
        who = (launch.attempt, launch.generation, 0, "", "", "", time.time())
        return LaunchedProcess(*who, launcher=self.name, handle=match[1])

    def submission(self, order: DriverOrder, master: str) -> list[str]:
        """Arguments of `spark-submit`, without any secret."""
        chosen, home = self._chosen, self.settings.drivers.home or str(self.settings.home)
        jars = pyspark_folder() / "jars"
        # The master's protocol requires a jar, which each worker copies; the runner itself is in Spark.
        some = min(jars.glob("*.jar"), key=lambda jar: (jar.stat().st_size, jar.name))
        conf = {**self._wire_conf(), "spark.pyspark.python": self._python}
        return [
            *(_SUBMIT, "--master", master, "--deploy-mode", "cluster", "--class", _RUNNER),
            *("--name", f"frazil driver of {order.label}", "--driver-memory", chosen.memory),
            *("--driver-cores", str(chosen.cores)),
            *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
            *(some.as_uri(), "-m", "", WRAPPER, order.module, *order.arguments_at(home)),
        ]

    def look(self, process: LaunchedProcess) -> Look:
        """State of a submission by the active master's page; see `Launcher`."""
        if not process.handle:
            return Look("ended", process.problem)
        try:
            page = self._page()
        except FrazilError as problem:
            return Look("unknown", problem.message, away=True)
        return look_in(page, process.handle)

    def end(self, process: LaunchedProcess, label: str, seconds: float) -> bool:
        """Have the master end a driver. Its worker asks first and kills after ten seconds; see `Launcher`."""
        del seconds
        if self.look(process).life == "ended":
            return True
        conf = [f"-D{key}={value}" for key, value in self._wire_conf().items()]
        said = self._run([*conf, _CLIENT, "kill", self.master, process.handle], self._secret_environment())
        if not wait_until(lambda: self.look(process).life == "ended", _ENDED_SECONDS, 1.0):
            raise FrazilError(
                f"stream {label}: Spark's master was asked to end {process.handle}, and it is unknown whether it has: "
                f"{self.look(process).reason or 'it runs'}.\n{_indented(said)}",
                fix="see the master's page; run this again",
            )
        return True

    @property
    def _python(self) -> str:
        return self._chosen.python or sys.executable

    def _wire_conf(self) -> dict[str, str]:
        conf = self.settings.spark.conf
        return {key: value for key, value in conf.items() if isinstance(value, str) and key.startswith(_OF_THE_WIRE)}

    def _secret_environment(self) -> dict[str, str]:
        secret = self.settings.spark.conf.get(_SECRET)
        # Address where the client listens while it runs.
        return {"SPARK_LOCAL_IP": "127.0.0.1"} | ({} if secret is None else {_SECRET_VARIABLE: reveal(secret)})

    def _environment(self, order: DriverOrder) -> dict[str, str]:
        return {
            **self.settings.drivers.environment,
            **KEEPER_OFF,
            LAUNCHER_VARIABLE: self.name,
            DRIVER_VARIABLE: driver_id(order.label, order.launch.attempt),
            **self._secret_environment(),
        }

    def _require_master(self, master: str) -> None:
        if problems := unanswered(master):
            raise NotLaunchedError(
                f"Spark's master, to which drivers are submitted, does not answer at {problems}.",
                fix=f"start the master, or correct drivers.spark_submit.master in {SETTINGS_FILE}",
            )

    def _run(
        self, arguments: Sequence[str], environment: Mapping[str, str], until: re.Pattern[str] | None = None
    ) -> str:
        """Run a Spark client until it ends or has printed a result; returns its output."""
        command = [_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
        command += [f"{pyspark_folder() / 'jars'}/*", *arguments]
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        timer = threading.Timer(self._chosen.timeout.total_seconds(), process.kill)
        timer.start()
        lines: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if until is not None and until.search(line):
                    break
        finally:
            timer.cancel()
            process.kill()
            process.communicate()
        return "".join(lines)

    def _page(self) -> dict[str, Any]:
        """Web page of the active master, as JSON.

        Raises:
            FrazilError: No active master can be seen.
        """
        problems = list(self._pages())
        found = [page for page in problems if isinstance(page, dict)]
        if found:
            return found[0]
        raise FrazilError("; ".join(map(str, problems)))

    def _pages(self) -> Iterator[dict[str, Any] | str]:
        for address in self._chosen.pages:
            try:
                answer = requests.get(f"{address}/json/", timeout=_PAGE_SECONDS)
                answer.raise_for_status()
                page = answer.json()
            except (requests.RequestException, ValueError) as problem:
                yield f"{address} does not answer ({type(problem).__name__})"
                continue
            if not isinstance(page, dict) or page.get("status") != "ALIVE":
                yield f"the master of {address} is not in charge"
                continue
            yield page


def look_in(page: Mapping[str, Any], handle: str) -> Look:
    """State of a submission on a master's page."""
    for each in page.get("activedrivers", ()):
        if each.get("id") == handle:
            worker = str(each.get("worker") or "")
            place = match[1] if (match := re.fullmatch(r"worker-[0-9]+-(.+)-[0-9]+", worker)) else ""
            waits = "no worker has enough free cores or memory for it" if each.get("state") == "SUBMITTED" else ""
            return Look("alive", waits, place)
    for each in page.get("completeddrivers", ()):
        if each.get("id") == handle:
            state = str(each.get("state"))
            return Look("ended", f"{_STATES.get(state, 'it has ended')} ({state})")
    return Look("ended", "the master does not know it any more")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise NotLaunchedError("Java was not found, which submits drivers to Spark.", fix="install Java 17 or 21")
    return found


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-12:])
