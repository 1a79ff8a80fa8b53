"""Preflight checks of what a machine must have, each with a one-sentence error."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from jobs.base.errors import FrazilError, first_line
from jobs.clients.install.coordinates import JAVA_VERSIONS, PYSPARK_BELOW, PYSPARK_MINIMUM

PYTHON_MINIMUM = (3, 11)
PYTHON_BELOW = (3, 14)
# A checkout has its Makefile. An installed wheel knows its own requirements, so pip needs no name of a file.
REINSTALL = (
    "make setup"
    if (Path(__file__).parents[3] / "Makefile").is_file()
    else f"{shlex.quote(sys.executable)} -m pip install frazil"
)
_JAVA_TIMEOUT_SECONDS = 30.0
_JAVA_NEEDED = " or ".join(map(str, JAVA_VERSIONS))
_JAVA_FIX = f"install a JDK or JRE {_JAVA_NEEDED}, or point JAVA_HOME at one"


class PreflightError(FrazilError):
    """Python, Java or a package is missing or has the wrong version.

    Safe: Nothing was changed.
    Next: install what the message names; then `make setup`
    """


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark and the broker can run on.

    Args:
        executable: The `java` command.
        version: Major version.
        home: Folder for JAVA_HOME, if Java was found through it.
        build: Full output of its version.
    """

    executable: Path
    version: int
    home: Path | None
    build: str = ""


def check_python() -> None:
    """Refuse a Python that PySpark or Dagster does not support.

    Raises:
        PreflightError: Python has another version; the error names it and the supported ones.
    """
    if not PYTHON_MINIMUM <= sys.version_info[:2] < PYTHON_BELOW:
        found = ".".join(map(str, sys.version_info[:3]))
        newest = f"{PYTHON_BELOW[0]}.{PYTHON_BELOW[1] - 1}"
        raise PreflightError(
            f"frazil needs Python {_dotted(PYTHON_MINIMUM)} to {newest}; this is {found} ({sys.executable})",
            fix=f"make setup PYTHON=python{newest}",
        )


def check_pyspark() -> str:
    """Return PySpark's version without importing it.

    Raises:
        PreflightError: PySpark is not installed, or its version does not match the committed JVM artifacts.
    """
    needed = f"{_dotted(PYSPARK_MINIMUM)} or later, below {_dotted(PYSPARK_BELOW)}"
    try:
        found = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise PreflightError(
            f"PySpark is not installed in {sys.prefix}; frazil needs {needed}", fix=REINSTALL
        ) from None
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:3])
    if not PYSPARK_MINIMUM <= numbers < PYSPARK_BELOW:
        raise PreflightError(
            f"PySpark {found} is installed in {sys.prefix}; frazil needs {needed}, because its Iceberg and Kafka jars"
            " are built for that line",
            fix=REINSTALL,
        )
    return found


def pyspark_folder() -> Path:
    """Return the folder of PySpark without importing it.

    Raises:
        PreflightError: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        check_pyspark()
        raise PreflightError(f"PySpark's files are not where Python looks for them ({sys.prefix})", fix=REINSTALL)
    return Path(next(iter(spec.submodule_search_locations)))


def check_java() -> Java:
    """Find Java by JAVA_HOME, otherwise by PATH, and read its version.

    JAVA_HOME wins even if it is wrong, because Spark's launcher prefers it, too.

    Raises:
        PreflightError: Java was not found, does not answer, or has a version that Spark 4.1 does not support.
    """
    executable, home = _find_java()
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PreflightError(
            f"{executable} -version did not answer within {_JAVA_TIMEOUT_SECONDS:.0f} s; frazil needs Java"
            f" {_JAVA_NEEDED}",
            fix=_JAVA_FIX,
        ) from None
    except OSError as error:
        raise PreflightError(
            f"{executable} cannot be started ({error.strerror}); frazil needs Java {_JAVA_NEEDED}", fix=_JAVA_FIX
        ) from None
    text = (answer.stderr or answer.stdout).strip()
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if match is None:
        shown = first_line(text, f"nothing, exit status {answer.returncode}")
        # /usr/bin/java of macOS only says where to get Java.
        raise PreflightError(f"{executable} -version says: {shown}; frazil needs Java {_JAVA_NEEDED}", fix=_JAVA_FIX)
    version = int(match.group(1))
    if version not in JAVA_VERSIONS:
        through = f" (by JAVA_HOME={home})" if home else " (by PATH)"
        raise PreflightError(
            f"Java {version} was found at {executable}{through}; frazil needs Java {_JAVA_NEEDED}, which Spark 4.1"
            " supports",
            fix=_JAVA_FIX,
        )
    build = "\n".join(line for line in text.splitlines() if not line.startswith("Picked up "))
    return Java(executable, version, home, build)


def preflight() -> Java:
    """Check Python, PySpark and Java without starting a service; return the Java to use.

    Raises:
        PreflightError: Something is missing or has the wrong version; the first problem is reported.
    """
    check_python()
    check_pyspark()
    return check_java()


def _find_java() -> tuple[Path, Path | None]:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home, "bin", "java")
        if not executable.is_file():
            raise PreflightError(
                f"JAVA_HOME is {home}, and there is no bin/java in it; frazil needs Java {_JAVA_NEEDED}",
                fix="unset JAVA_HOME, or point it at a Java " + _JAVA_NEEDED,
            )
        return executable, Path(home)
    found = shutil.which("java")
    if found is None:
        raise PreflightError(
            f"No Java was found: JAVA_HOME is not set and there is no `java` in PATH; frazil needs Java {_JAVA_NEEDED}",
            fix=_JAVA_FIX,
        )
    return Path(found), None


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


if __name__ == "__main__":
    # `make setup` runs this with the Python that it found, before any package is installed.
    try:
        check_python()
        check_java()
    except PreflightError as error:
        sys.exit(f"error: {error}")
