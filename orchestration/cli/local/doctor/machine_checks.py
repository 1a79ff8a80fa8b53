"""Checks of the machine and the installation: Python, Java, packages, JVM artifacts, disk, memory and ports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from jobs.base.errors import FrazilError
from jobs.base.system.ports import HOST, is_port_free
from jobs.clients.install.artifacts import ArtifactError, cache_folder, jar_folder, verify_jars
from jobs.clients.install.coordinates import FETCHED_AT_SETUP, ArtifactSet, artifact_sets
from jobs.clients.install.preflight import REINSTALL, check_java, check_pyspark, check_python
from jobs.clients.spark.catalog_conf import catalog_sets
from jobs.clients.spark.class_archive import VARIABLE, fitting_archive
from jobs.config.settings.settings import Settings
from jobs.local.broker.broker import LocalBroker
from jobs.local.broker.config import read_ports
from orchestration.cli.local.dev.services import PORT, running_services
from orchestration.cli.stream_files.validate.findings import Finding
from resources.deployment import Deployment

PROJECT = "frazil"
LOCK = Path(__file__).resolve().parents[4] / "requirements.lock"
_SHOWN = 5
_GIGABYTE = 1e9
# The first suffices for a day of development with one stream. Below the second, a driver's files may not fit.
_DISK = (5 * _GIGABYTE, 0.5 * _GIGABYTE)
# The first suffices for `frazil dev` with one driver. Below the second, not even a driver starts.
_MEMORY = (2.5 * _GIGABYTE, 1 * _GIGABYTE)


def versions() -> dict[str, str]:
    """Versions of frazil and of its main dependencies by name; `not installed` for a missing package."""
    iceberg = next(each.version for each in artifact_sets()["spark"] if each.name.startswith("iceberg-spark-runtime"))
    packages = {
        name: _version(package) or "not installed"
        for name, package in (
            ("frazil", PROJECT),
            ("Spark", "pyspark"),
            ("PyIceberg", "pyiceberg"),
            ("Dagster", "dagster"),
            ("PyArrow", "pyarrow"),
            ("librdkafka's client", "confluent-kafka"),
        )
    }
    return packages | {"Iceberg's Spark runtime": iceberg, "Python": platform.python_version(), "OS": _system()}


def check_versions() -> Finding:
    """Report the versions on one line."""
    shown = ", ".join(f"{name} {version}" for name, version in versions().items())
    return Finding(None, "versions", "ok", shown)


def check_interpreters() -> Iterator[Finding]:
    """Check that frazil supports the versions of Python, PySpark and Java."""
    try:
        check_python()
        yield Finding(None, "python", "ok", f"Python {platform.python_version()} ({sys.executable})")
    except FrazilError as problem:
        yield Finding(None, "python", "wrong", problem.message, problem.fix)
    try:
        check_pyspark()
    except FrazilError as problem:
        yield Finding(None, "packages", "wrong", problem.message, problem.fix)
    try:
        java = check_java()
        yield Finding(None, "java", "ok", f"Java {java.version} ({java.executable})")
    except FrazilError as problem:
        yield Finding(None, "java", "wrong", problem.message, problem.fix)


def check_packages(lock: Path = LOCK) -> Iterator[Finding]:
    """Check the installed Python packages against frazil's requirements and against the lock file.

    Args:
        lock: The checkout's lock file; if it does not exist, only the requirements are checked.
    """
    try:
        required = _requirements(PROJECT)
    except importlib.metadata.PackageNotFoundError:
        yield Finding(None, "packages", "wrong", "frazil itself is not installed in this environment", REINSTALL)
        return
    faults = list(_unfit(required, extra=""))
    if faults:
        sentence = f"{len(faults)} required packages are missing or have another version: {_listed(faults)}"
        yield Finding(None, "packages", "wrong", sentence, REINSTALL)
    yield _check_extras(required)
    if not lock.is_file():
        if not faults:
            yield Finding(None, "packages", "ok", "the packages satisfy frazil's requirements; there is no lock here")
        return
    locked = locked_versions(lock.read_text())
    others = [
        f"{name} {found} (locked: {version})"
        for name, version in locked.items()
        if (found := _version(name)) is not None and found != version
    ]
    if others:
        sentence = f"{len(others)} packages are not those of {lock.name}: {_listed(others)}"
        yield Finding(None, "packages", "warning", sentence, "make setup")
    elif not faults:
        yield Finding(None, "packages", "ok", f"the installed packages are those of {lock.name}")


def locked_versions(text: str) -> dict[str, str]:
    """Versions by package name in a lock file's text, without lines whose markers exclude this environment."""
    versions: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line[0] in " #":
            continue
        try:
            requirement = Requirement(line.rstrip("\\ "))
        except InvalidRequirement:
            continue
        exact = [each.version for each in requirement.specifier if each.operator == "=="]
        if exact and (requirement.marker is None or requirement.marker.evaluate()):
            versions[requirement.name] = exact[0]
    return versions


def _check_extras(required: list[Requirement]) -> Finding:
    """Report which optional extras are installed."""
    named = importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    missing = [extra for extra in named if any(_unfit(required, extra=extra))]
    there = [extra for extra in named if extra not in missing]
    sentence = f"installed: {', '.join(there) or 'none'}; not installed: {', '.join(missing) or 'none'}"
    return Finding(None, "extras", "ok", sentence)


def _requirements(package: str) -> list[Requirement]:
    return [Requirement(line) for line in importlib.metadata.requires(package) or []]


def _unfit(required: list[Requirement], *, extra: str) -> Iterator[str]:
    """Requirements that this environment does not satisfy, as text.

    Args:
        extra: The extra whose requirements are checked; empty for the requirements of frazil itself.
    """
    for requirement in required:
        marker = requirement.marker
        of_extra = marker is not None and "extra" in str(marker)
        if of_extra != bool(extra) or (marker is not None and not marker.evaluate({"extra": extra})):
            continue
        found = _version(requirement.name)
        if found is None:
            yield f"{requirement.name} (missing)"
        elif not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement.name} {found} (required: {requirement.specifier})"
        for further in requirement.extras if found is not None else ():
            yield from _unfit(_requirements(requirement.name), extra=further)


def check_artifacts(settings: Settings | None) -> Iterator[Finding]:
    """Check that the JVM artifacts exist and have the committed checksums; hashes every file.

    Args:
        settings: The settings, which name further sets of artifacts; None if they cannot be read.
    """
    whole = True
    for name in (*FETCHED_AT_SETUP, *_further_sets(settings)):
        try:
            jars = verify_jars(name)
        except ArtifactError as problem:
            if jar_folder(name).exists():
                yield Finding(None, "artifacts", "wrong", problem.message, problem.fix)
            else:
                sentence = f"{problem.message}; the first command that needs it fetches it"
                yield Finding(None, "artifacts", "unchecked", sentence, problem.fix)
            whole = False
            continue
        megabytes = sum(jar.stat().st_size for jar in jars) / 1e6
        sentence = f"{name}: {len(jars)} files, {megabytes:.0f} MB, with the committed checksums ({jars[0].parent})"
        yield Finding(None, "artifacts", "ok", sentence)
    if whole:
        yield from _check_class_archive()


def _further_sets(settings: Settings | None) -> Iterator[ArtifactSet]:
    if settings is None:
        return
    yield from catalog_sets(settings.catalog, settings.spark)
    if settings.registry is not None and settings.registry.is_local:
        yield "registry"


def _check_class_archive() -> Iterator[Finding]:
    """Check for the archive of Spark's classes, without which each start takes 2 s longer."""
    if os.environ.get(VARIABLE) == "off":
        return
    try:
        archive = fitting_archive()
    except (FrazilError, OSError):
        # Java, PySpark or the jars are missing, which another check reports.
        return
    if archive is None:
        sentence = "there is no archive of Spark's classes, so that every driver starts some seconds later"
        yield Finding(
            None, "artifacts", "warning", sentence, f"{shlex.quote(sys.executable)} -m jobs.clients.spark.class_archive"
        )


def check_room(deployment: Deployment, settings: Settings | None) -> Iterator[Finding]:
    """Check the free disk space below the folders that frazil writes to, and the available memory."""
    folders = [deployment.home, cache_folder(), Path(tempfile.gettempdir())]
    if settings is not None:
        folders.append(settings.state)
    seen = set[int]()
    for folder in map(_existing, folders):
        device = folder.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield _amount("disk", shutil.disk_usage(folder).free, _DISK, f"free on the disk of {folder}", "make room")
    available = available_memory()
    if available is None:
        yield Finding(None, "memory", "unchecked", "this system does not say how much memory is available")
    else:
        yield _amount("memory", available, _MEMORY, "of memory available", "end other programs, or add memory")


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _amount(subject: str, amount: float, limits: tuple[float, float], what: str, fix: str) -> Finding:
    enough, least = limits
    shown = f"{amount / _GIGABYTE:.1f} GB {what}"
    if amount >= enough:
        return Finding(None, subject, "ok", shown)
    verdict = "warning" if amount >= least else "wrong"
    return Finding(None, subject, verdict, f"{shown}; {enough / _GIGABYTE:.1f} GB are enough for one stream", fix)


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes of memory that are available on this machine and within its control group; None if unknown.

    Args:
        root: The folder that contains `proc` and `sys`.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    try:
        limit = (root / "sys/fs/cgroup/memory.max").read_text().strip()
        used = int((root / "sys/fs/cgroup/memory.current").read_text())
        return free if limit == "max" else min(free, max(0, int(limit) - used))
    except (OSError, ValueError):
        return free


def check_ports(deployment: Deployment, settings: Settings | None) -> Iterator[Finding]:
    """Check that the ports of `frazil dev` and `frazil up` are free, or report the running services."""
    services = running_services(deployment.embedded / "dagster")
    if services is not None:
        where = f" at {services.url}" if services.url else ""
        yield Finding(None, "ports", "ok", f"`frazil dev` runs{where}, process {services.pid}")
    elif is_port_free(PORT):
        yield Finding(None, "ports", "ok", f"{HOST}:{PORT} is free for Dagster's web UI")
    else:
        sentence = f"{HOST}:{PORT} is taken, so `frazil dev` serves Dagster's web UI on the next free port"
        yield Finding(None, "ports", "warning", sentence, "frazil dev --port NUMBER")
    if settings is None or not settings.kafka.is_embedded:
        return
    broker = LocalBroker(deployment.embedded / "broker").status()
    if broker.running:
        yield Finding(None, "ports", "ok", f"the local broker runs at {broker.address}, process {broker.pid}")
        return
    ports = _broker_ports(deployment.embedded / "broker")
    taken = [port for port in ports if not is_port_free(port)]
    if taken:
        sentence = f"{HOST}:{taken[0]}, where the local broker was, is taken; it would start on another port"
        yield Finding(None, "ports", "warning", sentence, f"end what listens on port {taken[0]}, then frazil up")
    elif ports:
        yield Finding(None, "ports", "ok", f"{HOST}:{ports[0]} is free for the local broker")


def _broker_ports(folder: Path) -> list[int]:
    try:
        ports = read_ports((folder / "server.properties").read_text())
    except OSError:
        return []
    return ports.all() if ports is not None else []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(canonicalize_name(package))
    except importlib.metadata.PackageNotFoundError:
        return None


def _system() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
