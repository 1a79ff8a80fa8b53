"""Checks of the machine: packages against a lock, memory and its limits, taken ports, damaged artifacts."""

from __future__ import annotations

import importlib.metadata
import shutil
import socket
import sys
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.install import artifacts
from jobs.config.settings.settings import Settings
from jobs.local.broker.config import Ports, server_properties
from orchestration.cli.local.dev import services
from orchestration.cli.local.dev.services import ServicesLock, running_services
from orchestration.cli.local.doctor import machine_checks
from orchestration.cli.local.doctor.machine_checks import (
    available_memory,
    check_artifacts,
    check_interpreters,
    check_packages,
    check_ports,
    check_room,
    locked_versions,
    versions,
)
from orchestration.cli.stream_files.validate.findings import Finding
from resources.deployment import Deployment


def by_verdict(findings: list[Finding], subject: str, verdict: str) -> list[str]:
    return [each.sentence for each in findings if (each.subject, each.verdict) == (subject, verdict)]


def test_a_lock_is_read_with_its_markers() -> None:
    text = "\n".join(
        [
            "# made by a tool",
            "attrs==25.1.0 \\",
            "    --hash=sha256:00",
            "pywin32==311 ; sys_platform == 'win32' \\",
            "typing-extensions==4.15.0 ; python_full_version >= '3.11'",
            "./local",
        ]
    )
    assert locked_versions(text) == {"attrs": "25.1.0", "typing-extensions": "4.15.0"}


def test_packages_that_are_not_those_of_the_lock_are_named(tmp_path: Path) -> None:
    lock, found = tmp_path / "requirements.lock", importlib.metadata.version("click")
    lock.write_text(f"click=={found}\nnot-installed-here==1.0\n")
    assert by_verdict(list(check_packages(lock)), "packages", "ok") == [
        "the installed packages are those of " + lock.name
    ]
    lock.write_text("click==0.0.1\n")
    (warning,) = [each for each in check_packages(lock) if each.verdict == "warning"]
    assert f"click {found} (locked: 0.0.1)" in warning.sentence
    assert warning.fix == "make setup"
    # Without a checkout there is no lock, and the requirements count.
    (without,) = by_verdict(list(check_packages(tmp_path / "none")), "packages", "ok")
    assert "satisfy frazil's requirements" in without


def test_extras_are_listed_whether_they_are_installed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("botocore", "pyspark", "thrift"):
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    findings = list(check_packages())
    (extras,) = by_verdict(findings, "extras", "ok")
    # `hive` is an extra of PyIceberg, which is installed without it.
    assert {"s3", "hive"} <= {*extras.partition("not installed: ")[2].split(", ")}
    (wrong,) = by_verdict(findings, "packages", "wrong")
    assert "pyspark (missing)" in wrong
    assert versions()["Spark"] == "not installed"


@pytest.mark.parametrize(
    ("version", "verdict", "sentence"),
    [
        ("17.0.2", "ok", "Java 17"),
        ("11.0.2", "wrong", "frazil needs Java 17 or 21"),
        ("", "wrong", "no bin/java in it"),
    ],
)
def test_java_that_is_missing_or_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, verdict: str, sentence: str
) -> None:
    if version:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (java_finding,) = [each for each in check_interpreters() if each.subject == "java"]
    assert java_finding.verdict == verdict
    assert sentence in java_finding.sentence
    assert verdict == "ok" or java_finding.fix


@pytest.mark.parametrize(
    ("limit", "used", "available"),
    [(None, None, 4_000 * 1024), ("max", "5", 4_000 * 1024), ("2000000", "500000", 1_500_000), ("10", "20", 0)],
)
def test_memory_is_what_machine_and_control_group_leave(
    tmp_path: Path, limit: str | None, used: str | None, available: int
) -> None:
    assert available_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8000 kB\nMemAvailable:    4000 kB\n")
    if limit is not None and used is not None:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(limit + "\n")
        (tmp_path / "sys/fs/cgroup/memory.current").write_text(used + "\n")
    assert available_memory(tmp_path) == available


def test_a_full_disk_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment.at(tmp_path / "not" / "there")
    for free, verdict in ((6e9, "ok"), (1e9, "warning"), (1e8, "wrong")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: shutil._ntuple_diskusage(0, 0, int(free)))
        disks = [each for each in check_room(deployment, None) if each.subject == "disk"]
        assert {each.verdict for each in disks} == {verdict}
        assert f"{free / 1e9:.1f} GB free" in disks[0].sentence


def test_ports_that_others_have_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment.at(tmp_path)
    settings = Settings.embedded(tmp_path)
    folder = deployment.embedded / "broker"
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, broker = taken.getsockname()[1], other.getsockname()[1]
        monkeypatch.setattr(machine_checks, "PORT", port)
        folder.mkdir(parents=True)
        (folder / "server.properties").write_text(server_properties(Ports(broker, broker), {}))
        ui, about_broker = check_ports(deployment, settings)
    assert (ui.verdict, ui.fix) == ("warning", "frazil dev --port NUMBER")
    assert f"127.0.0.1:{port} is taken" in ui.sentence
    assert about_broker.verdict == "warning"
    assert f"127.0.0.1:{broker}, where the local broker was, is taken" in about_broker.sentence
    assert [each.verdict for each in check_ports(deployment, settings)] == ["ok", "ok"]


def test_services_that_run_are_no_taken_port(tmp_path: Path) -> None:
    deployment = Deployment.at(tmp_path)
    home = deployment.embedded / "dagster"
    assert running_services(home) is None
    lock = ServicesLock(home)
    lock.acquire()
    lock.record_url("http://127.0.0.1:3017")
    try:
        claim = running_services(home)
        assert claim is not None and claim.url == "http://127.0.0.1:3017"
        (finding,) = check_ports(deployment, None)
        assert finding.sentence.startswith("`frazil dev` runs at http://127.0.0.1:3017")
    finally:
        lock.release()
    assert running_services(home) is None
    assert services.FILE in {each.name for each in home.iterdir()}


def test_artifacts_are_hashed_and_never_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    checksums = tmp_path / "artifacts.sha256"
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    checksums.write_text(f"{empty}  spark/a.jar\n{empty}  broker/b.jar\n")
    monkeypatch.setattr(artifacts, "CHECKSUMS", checksums)
    findings = list(check_artifacts(None))
    # The first command that needs a set fetches it.
    assert [each.verdict for each in findings] == ["unchecked", "unchecked"]
    assert all(each.fix == f"{sys.executable} -m jobs.clients.install.artifacts" for each in findings)
    assert not (tmp_path / "cache").exists()
    for name, jar in (("spark", "a.jar"), ("broker", "b.jar")):
        folder = artifacts.jar_folder(name)  # pyright: ignore[reportArgumentType]
        folder.mkdir(parents=True)
        (folder / jar).touch()
    assert by_verdict(list(check_artifacts(None)), "artifacts", "wrong") == []
    (artifacts.jar_folder("broker") / "b.jar").write_text("another one")
    (wrong,) = by_verdict(list(check_artifacts(None)), "artifacts", "wrong")
    assert "is not the committed one" in wrong
    (artifacts.jar_folder("spark") / "a.jar").unlink()
    with pytest.raises(FrazilError, match="is missing in"):
        artifacts.verify_jars("spark")
