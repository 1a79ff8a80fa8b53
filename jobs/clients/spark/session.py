"""Session of Spark: its settings, with nothing secret among them, and its start in a driver."""

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
# Names of Spark's, Kafka's, Iceberg's and object stores' settings, and values with a password within an address.
REDACTED = (
    r"(?i)secret|password|passphrase|token|credential|authorization|jaas|keystore|url"
    r"|(access|account|shared|api|private)[-_.]?key|connection[-_.]?string|\bsas\b|://[^/@\s]*:[^/@\s]+@"
)


Workload: TypeAlias = Literal["batches", "sql"]
"""What a session is for: batches of streams, which it plans and Python's tasks read and write, or Spark's own SQL."""

# Where the JVM only plans, compiling well and collecting in parallel costs more than it saves: without either, a fresh
# driver takes a quarter less CPU for its first four million records, and no more for the next.
_JVM: dict[Workload, str] = {
    "batches": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "sql": "-XX:+UseParallelGC",
}
# A query's checkpoint is scratch, see `jobs.streaming.driver.process.query`. What Spark itself takes for local files
# has Hadoop start `readlink` seven times a batch; and checksums are for those who read a checkpoint again.
_SCRATCH_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_DAEMON = {"spark.python.daemon.module": "jobs.clients.spark.worker_daemon"}
# Where frazil itself comes with the job, it comes too late for the daemons of the executors.
_CODE_OF_JOBS = frozenset({"spark.submit.pyFiles", "spark.yarn.dist.pyFiles"})
_PYTHON = "spark.pyspark.python"
# What a session takes while it runs; all else Spark reads once.
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
    """Spark's static settings for a driver; `spark.conf` of the settings wins over all but the jars.

    The whole map ends up on the JVM's command line, so what is secret is left to `secret_conf` and `apply_secrets`.

    Args:
        app: What Spark's UI calls the application.
        work: What the session is for. Whoever names a garbage collector in the settings chooses the JVM's way of work.
        java_options: More options for the JVM; the settings' own come after them.
        conf: Defaults on top of frazil's own.
    """
    scratch = settings.state / "spark"
    local = is_local(master_of(settings))
    more_jars = catalog_jars(settings.catalog, settings.spark) if work == "sql" else []
    jars = ",".join(str(jar) for jar in [*resolve_jars("spark"), *more_jars])
    given = {key: value for key, value in settings.spark.conf.items() if isinstance(value, str)}
    # Stopping a query in the middle of a Python batch can overflow a smaller stack.
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
        # Nobody logs in to the UI, so that all it does is show.
        "spark.ui.killEnabled": "false",
        # Spark's own patterns do not know the options in which Kafka's client takes a password or a private key, nor
        # all in which a catalog takes its own: any thread of the JVM shows those in the UI and the event log.
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
        # The executors of a cluster would each fetch them, and the tasks of batches are Python's.
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
    """Start Spark for a driver process, with the Python workers on this very interpreter.

    Args:
        output: Where the JVM and the workers print to for as long as they live, instead of this process's own output.
        settings, app, work, java_options, conf: As `spark_conf` takes them.

    Raises:
        MasterUnavailableError: The master of a cluster is not there, or does not accept the application.
        FrazilError: It does not start; names `output`, without which PySpark's own error is raised.
    """
    keep_pandas_out()
    require_master(settings)
    prepare_environment(settings)
    from pyspark.sql import SparkSession

    # PySpark's first word to the JVM imports this, which tries to import pandas.
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
    """A context whose JVM prints to a file, or that has settings which the JVM's command line does not show.

    PySpark starts one itself only with this process's own output, and with all settings on the command line.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        # Of a start that failed; PySpark would leave the new one to itself.
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
    """What is secret in `spark.conf` and has to be there when Spark starts, such as `spark.authenticate.secret`.

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
    """Set what else is secret in `spark.conf` on a session that runs, where no command line shows it."""
    revealed = settings.spark.revealed_conf()
    for key, value in settings.spark.conf.items():
        if not isinstance(value, str) and key.startswith(_OF_SESSIONS):
            session.conf.set(key, revealed[key])


def prepare_environment(settings: Settings) -> None:
    """Set what Spark takes from the environment of this process; to be called before its JVM starts.

    Its Python workers get the interpreter and the packages of this process, or the interpreter that
    `spark.pyspark.python` names. Its UI listens where the settings say: the
    only thing that Spark asks for that address is SPARK_LOCAL_IP, without which it takes all interfaces. Whatever else
    a JVM of frazil's listens on goes by `spark.driver.bindAddress`.
    """
    root = str(Path(__file__).resolve().parents[3])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    address = settings.spark.ui_address
    python = settings.spark.conf.get(_PYTHON)
    wanted = {
        # Of the workers, on whichever machine: the same path as here, unless the settings name another.
        "PYSPARK_PYTHON": python if isinstance(python, str) else sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths if root in paths else [root, *paths])),
        "SPARK_LOCAL_IP": address,
    }
    at = ipaddress.ip_address(address)
    if not (at.is_loopback or at.is_unspecified) and "SPARK_PUBLIC_DNS" not in os.environ:
        # What the UI's address is shown as; the driver's own would be loopback, where it then does not answer.
        wanted["SPARK_PUBLIC_DNS"] = address
    for name, value in wanted.items():
        # Written only where it changes something: others may be reading.
        if os.environ.get(name) != value:
            os.environ[name] = value
