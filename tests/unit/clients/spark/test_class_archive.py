"""Which archive of Spark's classes fits, what its making leaves behind, and that nothing depends on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.install.preflight import Java
from jobs.clients.spark import class_archive
from jobs.clients.spark.class_archive import (
    archive_folder,
    archive_option,
    fitting_archive,
    make_archive,
    quoted,
)

CONTENT = b"classes" * 100


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python environment, a PySpark of two jars and a cache of one."""
    for jar in ("pyspark/jars/spark-core.jar", "pyspark/jars/scala.jar", "cache/kafka-clients-1.jar"):
        (tmp_path / jar).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / jar).write_text(jar)
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(class_archive, "pyspark_folder", lambda: tmp_path / "pyspark")
    monkeypatch.setattr(class_archive, "class_path_jars", lambda: [tmp_path / "cache/kafka-clients-1.jar"])
    monkeypatch.setattr(class_archive, "check_pyspark", lambda: "4.0.5")
    monkeypatch.setattr(class_archive, "check_java", lambda: Java(Path("java"), 17, None, "17.0.15+6"))
    monkeypatch.setattr(class_archive, "_train", lambda target: target.write_bytes(CONTENT))
    return tmp_path


def made(said: list[str] | None = None) -> Path:
    file = make_archive((said if said is not None else []).append)
    assert file is not None
    return file


def other_java(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "check_java", lambda: Java(Path("java"), 17, None, "17.0.16+1"))


def other_pyspark(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "check_pyspark", lambda: "4.0.6")


def longer_jar(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = root / "pyspark/jars/scala.jar"
    before = jar.stat().st_mtime_ns
    jar.write_text("longer than before, and as old")
    os.utime(jar, ns=(before, before))


def younger_jar(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(root / "cache/kafka-clients-1.jar", ns=(1, 1))


def one_jar_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "pyspark/jars/more.jar").write_text("more")


def test_made_once_and_found_again(environment: Path) -> None:
    assert archive_option() == ""
    said: list[str] = []
    file = made(said)
    assert (file.parent, file.read_bytes()) == (environment / "environment/share/frazil", CONTENT)
    assert said[0].split(",")[0] == "preparing Spark's classes for quick starts"
    assert archive_option() == f"-XX:SharedArchiveFile={file} -Xlog:cds*=off"
    said.clear()
    assert made(said) == file
    assert said == []


@pytest.mark.parametrize("change", [other_java, other_pyspark, longer_jar, younger_jar, one_jar_more])
def test_one_that_does_not_fit_is_not_named_and_is_replaced(
    environment: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    before = made()
    change(environment, monkeypatch)
    assert archive_option() == ""
    after = made()
    assert after != before
    assert list(archive_folder().glob("*.jsa*")) == [after]


def test_one_cut_short_is_not_named_and_is_replaced(environment: Path) -> None:
    file = made()
    file.write_bytes(CONTENT[:-1])
    assert archive_option() == ""
    assert made() == file
    assert file.read_bytes() == CONTENT


def test_the_user_may_do_without_or_bring_another(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    assert archive_option("-Xmx1g") != ""
    assert archive_option("-XX:ArchiveClassesAtExit=/tmp/own.jsa") == ""
    assert archive_option("-Xmx1g -XX:SharedArchiveFile=/tmp/own.jsa") == ""
    monkeypatch.setenv(class_archive.VARIABLE, "off")
    assert archive_option() == ""
    assert make_archive(pytest.fail) is None


def test_no_java_is_a_sentence(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> Java:
        raise FrazilError("No Java was found")

    monkeypatch.setattr(class_archive, "check_java", no_java)
    assert archive_option() == ""
    said: list[str] = []
    assert make_archive(said.append) is None
    assert said == ["Spark will start without its classes prepared: No Java was found"]


def test_an_environment_that_cannot_be_written_is_a_sentence(environment: Path) -> None:
    (environment / "environment").write_text("a file where the folder should be")
    said: list[str] = []
    assert make_archive(said.append) is None
    assert said[0].startswith("Spark will start without its classes prepared: ")
    assert archive_option() == ""


def test_a_process_that_makes_none_is_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(class_archive, "_stem", lambda: "spark-0123456789abcdef")
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho working\necho 'this Java makes no archives' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    said: list[str] = []
    assert make_archive(said.append) is None
    assert said[1:] == ["Spark will start without its classes prepared: this Java makes no archives"]
    assert list(archive_folder().glob("*.jsa*")) == []
    assert fitting_archive() is None


def test_a_folder_with_blanks_is_quoted_as_sparks_launcher_wants_it() -> None:
    assert quoted("-XX:SharedArchiveFile=/a/b.jsa") == "-XX:SharedArchiveFile=/a/b.jsa"
    assert quoted('-XX:SharedArchiveFile=/a b/"c".jsa') == '"-XX:SharedArchiveFile=/a b/\\"c\\".jsa"'
