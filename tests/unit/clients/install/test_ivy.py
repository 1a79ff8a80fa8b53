"""What Ivy says when it cannot fetch becomes one sentence. A fake `java` speaks for Ivy; no test here fetches."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.install import ivy
from jobs.clients.install.coordinates import Coordinate
from jobs.clients.install.preflight import Java

COORDINATE = Coordinate("org.example", "a<b", "1.0", "a test")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "java"
    monkeypatch.setattr(ivy, "check_java", lambda: Java(java, 17, None))
    return java


def speak(java: Path, script: str) -> None:
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


def fetch(tmp_path: Path) -> list[str]:
    said: list[str] = []
    ivy.retrieve(
        [COORDINATE], tmp_path / "out", work=tmp_path / "work", label="spark", total=2, on_progress=said.append
    )
    return said


def test_progress_is_one_line_per_jar(java: Path, tmp_path: Path) -> None:
    speak(java, "echo '\t[SUCCESSFUL ] org.apache.kafka#kafka-clients;3.9.0!kafka-clients.jar (240ms)'; echo other")
    assert fetch(tmp_path) == ["spark: 1 of 2: kafka-clients 3.9.0"]


def test_a_refusal_says_what_ivy_said(java: Path, tmp_path: Path) -> None:
    speak(java, "echo '\t:: org.example#a;1.0: not found'; echo; exit 1")
    with pytest.raises(ivy.IvyError) as caught:
        fetch(tmp_path)
    assert caught.value.message == "org.example#a;1.0: not found"
    assert (
        caught.value.fix == "check the network (a proxy goes into JAVA_TOOL_OPTIONS, a mirror into FRAZIL_IVY_SETTINGS)"
    )


def test_a_refusal_without_a_word(java: Path, tmp_path: Path) -> None:
    speak(java, "exit 3")
    with pytest.raises(ivy.IvyError, match="Ivy ended with status 3"):
        fetch(tmp_path)


def test_the_question_is_well_formed_and_a_mirror_is_passed_on(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_IVY_SETTINGS", "/etc/mirror.xml")
    speak(java, f'echo "$@" > {tmp_path}/arguments')
    fetch(tmp_path)
    assert "-settings /etc/mirror.xml" in (tmp_path / "arguments").read_text()
    module = (tmp_path / "work" / "ivy.xml").read_text()
    assert (
        '<dependency org="org.example" name="a&lt;b" rev="1.0" conf="jars-&gt;default" transitive="false"/>' in module
    )


def test_another_file_of_a_module_is_asked_for_without_its_description(java: Path, tmp_path: Path) -> None:
    speak(java, f'echo "$@" > {tmp_path}/arguments')
    archive = Coordinate("org.example", "app", "2.0", "a test", classifier="all", packaging="tar.gz")
    assert archive.filename == "app-2.0-all.tar.gz"
    ivy.retrieve([archive], tmp_path / "out", work=tmp_path / "scratch", label="app", on_progress=lambda _: None)
    module = (tmp_path / "scratch" / "ivy.xml").read_text()
    assert '<artifact name="app" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency>' in module
    arguments = (tmp_path / "arguments").read_text()
    assert "-types jar bundle tar.gz" in arguments
    assert f"-settings {tmp_path / 'scratch' / 'ivysettings.xml'}" in arguments
    settings = (tmp_path / "scratch" / "ivysettings.xml").read_text()
    assert 'usepoms="false"' in settings
    assert 'readTimeout="120000"' in settings
