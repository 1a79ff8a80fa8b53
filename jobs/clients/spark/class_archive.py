"""Class archive of Spark's JVM (Java's dynamic CDS archive), which makes the start of drivers much faster.

It is in the Python environment that it belongs to. Its name contains a digest of all that it depends on, so a JVM never
gets an archive that does not fit. If a JVM still rejects it (other flags, another class path), it silently loads its
classes from the jars.

`FRAZIL_CLASS_ARCHIVE=off` disables it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.locks import exclusive
from jobs.base.system.processes import start_time, stop_process
from jobs.clients.install.artifacts import OnProgress, resolve_jars
from jobs.clients.install.preflight import check_java, check_pyspark, pyspark_folder

VARIABLE = "FRAZIL_CLASS_ARCHIVE"
_DEADLINE_SECONDS = 240.0
# Iceberg's classes stay in `spark.jars`: no driver uses them, and they contain copies of other libraries.
_IN_CLASS_PATH = ("kafka-clients-", "spark-sql-kafka-", "spark-token-provider-kafka-", "commons-pool2-")
# A JVM warns of an archive that it rejects, which is harmless.
_SILENT = "-Xlog:cds*=off"


def class_path_jars() -> list[Path]:
    """Return frazil's jars for the driver's class path: an archive can hold only classes of the class path.

    They share no class with Spark's jars, so it does not matter that Java searches them first.
    """
    return [jar for jar in resolve_jars("spark") if jar.name.startswith(_IN_CLASS_PATH)]


def archive_option(others: str = "") -> str:
    """Return the JVM options that use the archive; empty if no archive fits. Never raises.

    Args:
        others: Other options of the JVM. If they name an archive themselves, the result is empty.
    """
    if os.environ.get(VARIABLE) == "off" or "ArchiveClassesAtExit" in others or "SharedArchiveFile" in others:
        return ""
    try:
        file = fitting_archive()
    except (OSError, FrazilError):
        return ""
    return f"{quoted(f'-XX:SharedArchiveFile={file}')} {_SILENT}" if file else ""


def fitting_archive() -> Path | None:
    """Return the archive that fits this Java, this PySpark and these jars; None unless it exists and is complete.

    A JVM that maps a truncated file crashes, so the name contains the size.

    Raises:
        FrazilError: Java, PySpark or a jar is missing.
        OSError: A jar cannot be read.
    """
    for file in archive_folder().glob(f"{_stem()}-*.jsa"):
        if file.stem.rpartition("-")[2] == str(file.stat().st_size):
            return file
    return None


def _stem() -> str:
    parts = [check_java().build, check_pyspark()]
    # Java compares modification times, too.
    for jar in [*sorted((pyspark_folder() / "jars").glob("*.jar")), *class_path_jars()]:
        status = jar.stat()
        parts.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    return f"spark-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"


def archive_folder() -> Path:
    """Return the folder of this Python environment's archive."""
    return Path(sys.prefix) / "share" / "frazil"


def make_archive(on_progress: OnProgress) -> Path | None:
    """Return the archive, made by a short run of Spark if it does not exist; None if that fails.

    Nothing requires the archive, so a failure is reported as a line of text and not raised.

    Args:
        on_progress: Called with lines of text.
    """
    if os.environ.get(VARIABLE) == "off":
        return None
    folder = archive_folder()
    try:
        if not (file := fitting_archive()):
            folder.mkdir(parents=True, exist_ok=True)
            with exclusive(folder / ".lock", deadline_seconds=_DEADLINE_SECONDS):
                file = fitting_archive() or _make(folder, on_progress)
    except (OSError, FrazilError) as problem:
        on_progress(f"Spark will start without its classes prepared: {problem}")
        return None
    return file


def quoted(option: str) -> str:
    """Quote a JVM option for Spark's launcher, which splits options at spaces outside of double quotes."""
    return '"' + option.replace("\\", r"\\").replace('"', r"\"") + '"' if " " in option else option


def _make(folder: Path, say: OnProgress) -> Path:
    say("preparing Spark's classes for quick starts, once, about 30 s")
    began = time.monotonic()
    for old in folder.glob("*.jsa*"):
        old.unlink()
    partial = folder / "spark.jsa.partial"
    try:
        _train(partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
            size = os.fstat(written.fileno()).st_size
        file = partial.replace(folder / f"{_stem()}-{size}.jsa")
    finally:
        partial.unlink(missing_ok=True)
    say(f"Spark's classes are prepared: {size / 1e6:.0f} MB in {time.monotonic() - began:.0f} s")
    return file


def _train(target: Path) -> None:
    """Run a training process, whose JVM writes the archive when it ends.

    Raises:
        FrazilError: No archive was written; the error quotes the last line of the process's output.
    """
    root = str(Path(__file__).resolve().parents[3])
    with tempfile.TemporaryDirectory(prefix="frazil-classes-") as folder:
        said = Path(folder) / "said"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "jobs.clients.spark.class_training", str(target), folder],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            started = start_time(process.pid)
            try:
                status = process.wait(_DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                raise FrazilError(f"that took more than {_DEADLINE_SECONDS:.0f} s") from None
            finally:
                stop_process(process.pid, started, grace_seconds=0.0)
                process.wait()
        if not target.is_file():
            lines = said.read_text(errors="replace").strip().splitlines()
            raise FrazilError(lines[-1] if lines else f"Java wrote no archive (exit status {status})")


if __name__ == "__main__":
    # `make setup` goes on even if this fails.
    make_archive(functools.partial(print, "  ", sep="", flush=True))
