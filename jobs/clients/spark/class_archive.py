"""Class archive of Spark's JVM: mapped into memory, it lets every later driver start a good deal quicker.

Java calls it a dynamic CDS archive. It lies in the Python environment that it fits and goes with it. Its name holds a
digest of all that it depends on, so one that no longer fits is never even named to a JVM; and a JVM that finds fault
with one (other flags, a class path of its own) loads its classes from the jars, as ever, and says nothing.

`FRAZIL_CLASS_ARCHIVE=off` does without it.
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
# Iceberg's classes stay where `spark.jars` puts them: no driver uses them, and they bring copies of other libraries.
_IN_CLASS_PATH = ("kafka-clients-", "spark-sql-kafka-", "spark-token-provider-kafka-", "commons-pool2-")
# A JVM warns of an archive that it does not take, which is nobody's concern.
_SILENT = "-Xlog:cds*=off"


def class_path_jars() -> list[Path]:
    """The jars of frazil's own that go into the driver's class path, because an archive holds no others' classes.

    They hold no class that Spark's jars hold, too, so it is no matter that Java asks them first.
    """
    return [jar for jar in resolve_jars("spark") if jar.name.startswith(_IN_CLASS_PATH)]


def archive_option(others: str = "") -> str:
    """The options with which a driver's JVM uses the archive; empty if there is no fitting one. Never raises.

    Args:
        others: The JVM's other options; if they are about an archive themselves, this one stays out of their way.
    """
    if os.environ.get(VARIABLE) == "off" or "ArchiveClassesAtExit" in others or "SharedArchiveFile" in others:
        return ""
    try:
        file = fitting_archive()
    except (OSError, FrazilError):
        return ""
    return f"{quoted(f'-XX:SharedArchiveFile={file}')} {_SILENT}" if file else ""


def fitting_archive() -> Path | None:
    """The archive that fits this Java, this PySpark and these jars, if it is there and whole.

    A JVM that maps a file cut short dies of it, so its size stands in its name.

    Raises:
        FrazilError: Java, PySpark or a jar is missing.
        OSError: A jar cannot be looked at.
    """
    for file in archive_folder().glob(f"{_stem()}-*.jsa"):
        if file.stem.rpartition("-")[2] == str(file.stat().st_size):
            return file
    return None


def _stem() -> str:
    parts = [check_java().build, check_pyspark()]
    # Java compares the times, too.
    for jar in [*sorted((pyspark_folder() / "jars").glob("*.jar")), *class_path_jars()]:
        status = jar.stat()
        parts.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    return f"spark-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"


def archive_folder() -> Path:
    """Where this Python environment keeps its archive."""
    return Path(sys.prefix) / "share" / "frazil"


def make_archive(on_progress: OnProgress) -> Path | None:
    """Have the archive, made by a short run of Spark if it is not there; None if that is not possible.

    Nothing needs it, so whatever goes wrong is told in a sentence and is no error.

    Args:
        on_progress: Called with a line of text when there is something to tell.
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
    """A JVM option as Spark's launcher splits them: by spaces, with double quotes around what holds some."""
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
    """Run what a driver runs in a process of its own, whose JVM writes the archive when it ends.

    Raises:
        FrazilError: It did not, with the last line of what the process said.
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
    # Of no consequence to `make setup`, whatever comes of it.
    make_archive(functools.partial(print, "  ", sep="", flush=True))
