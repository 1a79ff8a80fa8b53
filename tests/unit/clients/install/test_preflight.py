"""What a newcomer is told when Java, Python or PySpark is missing or wrong."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.clients.install import preflight
from jobs.clients.install.preflight import (
    PreflightError,
    check_java,
    check_pyspark,
    check_python,
)

ANSWER_11 = 'openjdk version "11.0.2" 2019-01-15'
ANSWER_17 = 'openjdk version "17.0.15" 2025-04-15'
ANSWER_21 = 'openjdk version "21" 2023-09-19'
ANSWER_8 = 'java version "1.8.0_202"'


def fake_java(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH, with no JAVA_HOME."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize(("answer", "version"), [(ANSWER_17, 17), (ANSWER_21, 21)])
def test_a_good_java_in_path(path_folder: Path, answer: str, version: int) -> None:
    java = fake_java(path_folder, f"echo '{answer}' >&2")
    found = check_java()
    assert (found.executable, found.version, found.home) == (java, version, None)


def test_java_home_comes_before_path(path_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(path_folder, f"echo '{ANSWER_21}' >&2")
    java = fake_java(tmp_path / "home" / "bin", f"echo '{ANSWER_17}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = check_java()
    assert (found.executable, found.version, found.home) == (java, 17, tmp_path / "home")


@pytest.mark.parametrize(("answer", "version"), [(ANSWER_11, 11), (ANSWER_8, 8)])
def test_a_java_of_the_wrong_version(path_folder: Path, answer: str, version: int) -> None:
    java = fake_java(path_folder, f"echo '{answer}' >&2")
    with pytest.raises(PreflightError) as caught:
        check_java()
    assert str(caught.value) == (
        f"Java {version} was found at {java} (by PATH); frazil needs Java 17 or 21, which Spark 4.1 supports\n"
        "  Next: install a JDK or JRE 17 or 21, or point JAVA_HOME at one"
    )


def test_no_java_at_all(path_folder: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        check_java()
    assert caught.value.message == (
        "No Java was found: JAVA_HOME is not set and there is no `java` in PATH; frazil needs Java 17 or 21"
    )


def test_java_home_without_a_java(path_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(path_folder, f"echo '{ANSWER_17}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PreflightError) as caught:
        check_java()
    assert (
        caught.value.message == f"JAVA_HOME is {tmp_path}, and there is no bin/java in it; frazil needs Java 17 or 21"
    )


def test_a_java_that_only_tells_where_to_get_one(path_folder: Path) -> None:
    java = fake_java(path_folder, "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    with pytest.raises(PreflightError) as caught:
        check_java()
    assert caught.value.message == f"{java} -version says: Unable to locate a Java Runtime.; frazil needs Java 17 or 21"


def test_a_java_that_never_answers_is_given_up_in_time(path_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.clients.install.preflight._JAVA_TIMEOUT_SECONDS", 1.0)
    # `exec` keeps it one process, so that nothing is left when the time-out kills it.
    java = fake_java(path_folder, "exec /bin/sleep 600")
    with pytest.raises(PreflightError) as caught:
        check_java()
    assert caught.value.message == f"{java} -version did not answer within 1 s; frazil needs Java 17 or 21"


def test_a_java_for_another_machine(path_folder: Path) -> None:
    java = path_folder / "java"
    java.write_bytes(b"\x7fELF of some other machine")
    java.chmod(0o755)
    with pytest.raises(PreflightError) as caught:
        check_java()
    assert caught.value.message == f"{java} cannot be started (Exec format error); frazil needs Java 17 or 21"


@pytest.mark.parametrize("version", ["4.1.4", "4.1.12"])
def test_a_good_pyspark(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert check_pyspark() == version


@pytest.mark.parametrize("version", ["3.5.8", "4.1.3", "4.2.0", "4.2.0.dev1"])
def test_a_pyspark_of_another_line(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    with pytest.raises(PreflightError) as caught:
        check_pyspark()
    assert str(caught.value) == (
        f"PySpark {version} is installed in {sys.prefix}; frazil needs 4.1.4 or later, below 4.2, because its Iceberg"
        " and Kafka jars are built for that line\n  Next: make setup"
    )


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(PreflightError) as caught:
        check_pyspark()
    assert caught.value.message == f"PySpark is not installed in {sys.prefix}; frazil needs 4.1.4 or later, below 4.2"


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 14, "final", 0))
    with pytest.raises(PreflightError) as caught:
        check_python()
    assert caught.value.message == f"frazil needs Python 3.11 to 3.13; this is 3.10.14 ({sys.executable})"


def test_the_command_shows_no_stack_trace(path_folder: Path) -> None:
    fake_java(path_folder, f"echo '{ANSWER_11}' >&2")
    answer = subprocess.run(
        [sys.executable, "-m", "jobs.clients.install.preflight"],
        cwd=Path(preflight.__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: Java 11 was found at ")
    assert "Traceback" not in answer.stderr
