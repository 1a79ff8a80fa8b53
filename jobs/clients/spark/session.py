"""Spark session: its settings, without secrets, and its start in a driver."""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.pandas_import import keep_pandas_out, without_pandas
from jobs.base.system.private_files import private_folder, private_opener
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.spark.catalog_conf import catalog_jars
from jobs.clients.spark.class_archive import archive_option, class_path_jars
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.master import (
    is_local,
    master_of,
    not_accepted,
    require_master,
)
from jobs.clients.spark.scratch import process_folder
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_LOCAL_FOLDER = "spark.local.dir"
# Pattern for names of secret settings of Spark, Kafka, Iceberg and object stores, and for passwords in addresses.
REDACTED = (
    r"(?i)secret|password|passphrase|token|credential|authorization|jaas|keystore|url"
    r"|(access|account|shared|api|private)[-_.]?key|connection[-_.]?string|\bsas\b|://[^/@\s]*:[^/@\s]+@"
)


Workload: TypeAlias = Literal["batches", "sql"]
"""Purpose of a session: batches of streams, whose Python tasks read and write, or Spark's own SQL."""

# If the JVM only plans, an optimizing compiler and a parallel collector cost more than they save. Without them, a fresh
# driver takes a quarter less CPU for its first four million records, and no more for later ones.
_JVM: dict[Workload, str] = {
    "batches": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "sql": "-XX:+UseParallelGC",
}
# A query's checkpoint is scratch, see `jobs.streaming.driver.process.query`. Spark's default for local files lets
# Hadoop start `readlink` seven times a batch. Checksums would matter only if the checkpoint were read again.
_SCRATCH_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_DAEMON = {"spark.python.daemon.module": "jobs.clients.spark.worker_daemon"}
# If these options ship frazil with the job, it arrives too late for the executors' worker daemons.
_CODE_OF_JOBS = frozenset({"spark.submit.pyFiles", "spark.yarn.dist.pyFiles"})
_PYTHON = "spark.pyspark.python"
# Options that a running session accepts; Spark reads all others once.
_OF_SESSIONS = ("spark.sql.", "spark.hadoop.")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def spark_conf(
    settings: Settings,
    app: str,
    *,
    work: Workload = "batches",
    java_options: str = "",
    conf: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return Spark's static settings for a driver; `spark.conf` of the settings overrides all but the jars.

    The whole map ends up on the JVM's command line, so secrets are left to `secret_conf` and `apply_secrets`.

    Args:
        app: Name of the application in Spark's UI.
        work: Purpose of the session. If the settings name a garbage collector, frazil sets no JVM flags for the
            purpose.
        java_options: More options for the JVM, before those of the settings.
        conf: Defaults in addition to frazil's.
    """
    scratch = settings.state / "spark"
    local = is_local(master_of(settings))
    more_jars = catalog_jars(settings.catalog, settings.spark) if work == "sql" else []
    jars = ",".join(str(jar) for jar in [*resolve_jars("spark"), *more_jars])
    given = {key: value for key, value in settings.spark.conf.items() if isinstance(value, str)}
    # A smaller stack can overflow if a query is stopped during a Python batch.
    more = " ".join(filter(None, [java_options, given.pop(_JAVA_OPTIONS, "")]))
    java = ["-Xss16m", "" if _COLLECTOR.search(more) else _JVM[work], archive_option(more), more]
    return {
        "spark.master": settings.spark.master,
        "spark.app.name": app,
        "spark.driver.memory": settings.spark.driver_memory,
        _JAVA_OPTIONS: " ".join(filter(None, java)),
        _CLASS_PATH: ":".join([*map(str, class_path_jars()), *filter(None, [given.pop(_CLASS_PATH, "")])]),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        _LOCAL_FOLDER: given.get(_LOCAL_FOLDER) or str(process_folder(scratch / "local")),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.showConsoleProgress": "false",
        # The UI has no login, so it must not change anything.
        "spark.ui.killEnabled": "false",
        # Spark's default pattern misses options of Kafka's client and of catalogs that hold passwords or private
        # keys. The UI and the event log would show them.
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.checkpoint.renamedFileCheck.enabled": "false",
        **_SCRATCH_CHECKPOINT,
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        "spark.python.worker.reuse": "true",
        **(_DAEMON if local or not _CODE_OF_JOBS & given.keys() else {}),
        **(conf or {}),
        **given,
        # Each executor of a cluster would fetch the jars, and batches run in Python.
        **({"spark.jars": jars} if local or work == "sql" else {}),
    }


def start_session(
    settings: Settings,
    app: str,
    *,
    work: Workload = "batches",
    java_options: str = "",
    conf: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> SparkSession:
    """Start Spark for a driver process, with Python workers on this interpreter.

    Args:
        output: File for the output of the JVM and the workers; None for this process's own output.
        settings, app, work, java_options, conf: See `spark_conf`.

    Raises:
        MasterUnavailableError: The master of a cluster does not answer, or does not accept the application.
        FrazilError: Spark does not start; the error names `output`. Without `output`, PySpark's own error is raised.
    """
    keep_pandas_out()
    require_master(settings)
    prepare_environment(settings)
    from pyspark.sql import SparkSession

    # PySpark's first contact with the JVM imports a module that tries to import pandas.
    with without_pandas():
        importlib.import_module("pyspark.testing.utils")
    options = spark_conf(settings, app, work=work, java_options=java_options, conf=conf)
    secrets = secret_conf(settings)
    if secrets:
        shown = "|".join([options["spark.redaction.regex"], *(f"^{re.escape(key)}$" for key in secrets)])
        options["spark.redaction.regex"] = shown
    try:
        if output is not None or secrets:
            _start_context(options, secrets, output)
        builder = SparkSession.builder
        for key, value in options.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        apply_secrets(session, settings)
    except (FrazilError, OSError):
        raise
    except Exception as problem:
        if (refused := not_accepted(options["spark.master"], str(problem))) is not None:
            raise refused from None
        if output is None:
            raise
        said = redacted(settings, first_line(problem))
        raise FrazilError(f"Spark did not start: {said}", fix=f"read {output}") from None
    return session


def _start_context(options: Mapping[str, str], secrets: Mapping[str, str], output: Path | None) -> None:
    """Start a context whose JVM prints to a file, or whose settings must not be on the JVM's command line.

    PySpark itself uses this process's output, and puts all settings on the command line.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        # The start failed; PySpark would leave its JVM running.
        end_spark()
    conf = SparkConf().setAll(list(options.items()))
    if output is None:
        gateway = launch_gateway(conf)
    else:
        private_folder(output.parent)
        with open(output, "wb", opener=private_opener) as log:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
    SparkContext(conf=conf.setAll(list(secrets.items())), gateway=gateway)


def secret_conf(settings: Settings) -> dict[str, str]:
    """Return the secrets in `spark.conf` that Spark needs at its start, such as `spark.authenticate.secret`.

    Raises:
        FrazilError: An environment variable is not set.
    """
    revealed = settings.spark.revealed_conf()
    return {
        key: revealed[key]
        for key, value in settings.spark.conf.items()
        if not isinstance(value, str) and not key.startswith(_OF_SESSIONS)
    }


def apply_secrets(session: SparkSession, settings: Settings) -> None:
    """Set the other secrets in `spark.conf` on a running session, so that no command line shows them."""
    revealed = settings.spark.revealed_conf()
    for key, value in settings.spark.conf.items():
        if not isinstance(value, str) and key.startswith(_OF_SESSIONS):
            session.conf.set(key, revealed[key])


def prepare_environment(settings: Settings) -> None:
    """Set the environment variables that Spark reads; to be called before its JVM starts.

    Its Python workers get the interpreter and the packages of this process, or the interpreter in
    `spark.pyspark.python`. Its UI listens on the address in the settings: Spark reads that address only from
    SPARK_LOCAL_IP, and otherwise listens on all interfaces. All other listeners of the JVM use
    `spark.driver.bindAddress`.
    """
    root = str(Path(__file__).resolve().parents[3])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    address = settings.spark.ui_address
    python = settings.spark.conf.get(_PYTHON)
    wanted = {
        # Interpreter of the workers on all machines: the same path as here, unless the settings name another.
        "PYSPARK_PYTHON": python if isinstance(python, str) else sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths if root in paths else [root, *paths])),
        "SPARK_LOCAL_IP": address,
    }
    at = ipaddress.ip_address(address)
    if not (at.is_loopback or at.is_unspecified) and "SPARK_PUBLIC_DNS" not in os.environ:
        # Host in the UI's links; the driver's own host may be loopback, on which the UI does not listen then.
        wanted["SPARK_PUBLIC_DNS"] = address
    for name, value in wanted.items():
        # Set only if it changes: other threads may be reading the environment.
        if os.environ.get(name) != value:
            os.environ[name] = value
