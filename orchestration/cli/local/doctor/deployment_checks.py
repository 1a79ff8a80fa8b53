"""Checks of a deployment's files and services: streams, settings, broker, catalog, registry, stores, Dagster, clock."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.deadline import within
from jobs.clients.catalog.catalog import NoCatalogYet, client_properties, find_table
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError
from jobs.config.documents.secrets import secrets_in
from jobs.config.documents.validation import SpecError
from jobs.config.redaction import redacted
from jobs.config.services.registry import noted_address
from jobs.config.settings.settings import Settings, secret_references
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.write.locations import local_folder
from orchestration.cli.common.dagster_instance import DATABASES, dagster_home
from orchestration.cli.stream_files.validate.catalog_checks import check_state, connected_catalog
from orchestration.cli.stream_files.validate.findings import Finding
from orchestration.cli.stream_files.validate.service_checks import (
    check_cluster,
    check_launcher,
    check_letter_topic,
    check_registry,
    check_topics,
    connected_kafka,
)
from resources.deployment import Deployment

_HTTP_SECONDS = 5.0
_PROBE_SECONDS = 20.0
_DAGSTER_SECONDS = 20.0
# Daemons report every 30 seconds.
_SILENT_SECONDS = 300.0
# S3 refuses signed requests if the clock is 15 minutes off; leases and event times suffer earlier.
_SKEW_NOTED, _SKEW_WRONG = 5.0, 300.0
_SET_CLOCK = "have this machine's clock set, as by chrony or systemd-timesyncd: timedatectl set-ntp true"


def read_files(deployment: Deployment) -> tuple[list[StreamSpec], Settings | None, list[Finding]]:
    """Read the files of streams and settings, and report their problems; invalid settings are None."""
    findings: list[Finding] = []
    specs: list[StreamSpec] = []
    if deployment.streams_folder.is_dir():
        specs, errors = deployment.streams()
        named = ", ".join(spec.stream for spec in specs) or "none"
        findings.append(Finding(None, "streams", "ok", f"{len(specs)} in {deployment.streams_folder}: {named}"))
        problems = [problem for each in errors for problem in each.problems]
        findings += [Finding(None, "streams", "wrong", problem, "frazil validate") for problem in problems]
    else:
        sentence = f"there is no folder {deployment.streams_folder}, so this is no deployment yet"
        findings.append(Finding(None, "streams", "unchecked", sentence, "frazil init NAME, or name one with --home"))
    try:
        settings = deployment.settings()
    except SpecError as error:
        findings += [Finding(None, "settings", "wrong", problem, "frazil validate") for problem in error.problems]
        return specs, None, findings
    source = deployment.settings_file or deployment.home / "frazil.yaml"
    shown = str(source) if source.exists() else "the embedded default: local broker, SQLite catalog"
    findings.append(Finding(None, "settings", "ok", shown))
    for secret in dict.fromkeys((*secret_references(settings), *secrets_in(specs))):
        try:
            secret.reveal()
        except FrazilError as problem:
            findings.append(Finding(None, "settings", "wrong", problem.message, problem.fix))
    return specs, settings, findings


def check_services(
    specs: list[StreamSpec], settings: Settings, deployment: Deployment, *, write_probe: bool
) -> Iterator[Finding]:
    """Check that each service in the settings answers, and that it has what the streams need."""
    yield from check_state(settings)
    yield from check_cluster(settings)
    yield from check_launcher(settings)
    kafka = _asked_kafka(specs, settings)
    if isinstance(kafka, KafkaLog):
        yield Finding(None, "kafka", "ok", f"the brokers at {settings.kafka.require_bootstrap()} answer")
        for spec in specs:
            yield check_topics(spec, kafka)
    else:
        yield kafka
    yield from filter(None, (check_letter_topic(spec, settings) for spec in specs))
    yield from check_registry(specs, settings)
    catalog = connected_catalog(settings)
    if isinstance(catalog, Finding):
        yield catalog
    elif isinstance(catalog, NoCatalogYet):
        yield Finding(None, "catalog", "unchecked", catalog.message, "frazil run STREAM makes it")
    else:
        yield from _check_catalog(catalog, specs, settings, write_probe=write_probe)
    yield from check_clock(settings, specs, kafka if isinstance(kafka, KafkaLog) else None)
    yield check_dagster(dagster_home(deployment))


def _asked_kafka(specs: list[StreamSpec], settings: Settings) -> KafkaLog | Finding:
    kafka = connected_kafka(specs, settings)
    if specs or not isinstance(kafka, KafkaLog):
        return kafka
    try:
        # Without streams `connected_kafka` sends no request.
        kafka.topics(Source(topics_pattern="frazil doctor"))
        return kafka
    except KafkaUnavailableError as problem:
        return Finding(None, "kafka", "wrong" if problem.refused else "unchecked", problem.message, problem.fix)


def _check_catalog(
    catalog: Catalog, specs: list[StreamSpec], settings: Settings, *, write_probe: bool
) -> Iterator[Finding]:
    try:
        count = within(_PROBE_SECONDS, f"catalog {catalog.name}", lambda: len(catalog.list_namespaces()))
        yield Finding(None, "catalog", "ok", f"catalog {catalog.name} answers; it has {count} namespaces")
    except Exception as problem:
        said = redacted(settings, first_line(problem))
        yield Finding(None, "catalog", "wrong", f"catalog {catalog.name}: {said}", "check `catalog` in frazil.yaml")
        return
    place = _probe_place(catalog, specs, settings)
    if place is None:
        sentence = "where files go is only known with the first table, so no file was written, read and deleted"
        yield Finding(None, "warehouse", "unchecked", sentence, "frazil run STREAM, then frazil doctor --write-probe")
    elif not write_probe:
        sentence = f"no file was written to {place[1]}"
        yield Finding(None, "warehouse", "unchecked", sentence, "frazil doctor --write-probe")
    else:
        yield probe_files(*place, settings)


def _probe_place(catalog: Catalog, specs: list[StreamSpec], settings: Settings) -> tuple[FileIO, str] | None:
    """Location of the write probe, with its file IO: the warehouse's URI, else the first table's location."""
    warehouse = str(settings.catalog.properties.get("warehouse", ""))
    if "://" in warehouse:
        folder = local_folder(warehouse)
        if folder is not None and not folder.is_dir():
            return None
        properties = {**client_properties(settings.catalog), **catalog.properties}
        return load_file_io(properties, warehouse), warehouse.rstrip("/")
    for spec in specs:
        with contextlib.suppress(FrazilError):
            if table := find_table(catalog, spec.table.name):
                return table.io, table.location().rstrip("/")
    return None


def probe_files(files: FileIO, place: str, settings: Settings) -> Finding:
    """Write a file below a location, read it and delete it."""
    path = f"{place}/frazil-doctor-{os.urandom(6).hex()}"
    content = b"A probe of `frazil doctor`, which deletes it."
    try:
        within(_PROBE_SECONDS, f"the store of {place}", lambda: _round_trip(files, path, content))
    except Exception as problem:
        sentence = f"{place}: {type(problem).__name__}: {redacted(settings, first_line(problem))}"
        fix = f"check the rights and the keys under catalog.properties in frazil.yaml; remove {path} if it exists"
        return Finding(None, "warehouse", "wrong", sentence, fix)
    return Finding(None, "warehouse", "ok", f"a file was written to {place}, read and deleted")


def _round_trip(files: FileIO, path: str, content: bytes) -> None:
    with files.new_output(path).create(overwrite=False) as out:
        out.write(content)
    with files.new_input(path).open() as read:
        if read.read() != content:
            raise OSError(f"{path} does not give back what was written")
    files.delete(path)


def check_clock(settings: Settings, specs: list[StreamSpec], kafka: KafkaLog | None) -> Iterator[Finding]:
    """Compare this machine's clock with the services that name their time, and with the newest records."""
    skews: dict[str, float] = {}
    for url in time_sources(settings):
        if (skew := http_skew(url)) is not None:
            skews[url] = skew
    for topic, ahead in (newest_records(specs, kafka) if kafka is not None else {}).items():
        # A record may have any age, but its time cannot be in the future.
        if ahead > _SKEW_NOTED:
            skews[f"the newest record of topic {topic}"] = ahead
    if not skews:
        yield Finding(None, "clock", "unchecked", f"no service names its time; this machine's is {_now()}")
        return
    yield from (clock_finding(place, skew) for place, skew in skews.items())


def clock_finding(place: str, skew: float) -> Finding:
    """Judge the difference between two clocks.

    Args:
        place: Name of the service, or of the newest record, whose time was compared.
        skew: Seconds by which that time is ahead of this machine's clock.
    """
    if abs(skew) <= _SKEW_NOTED:
        return Finding(None, "clock", "ok", f"this machine's clock agrees with {place} within {_SKEW_NOTED:.0f} s")
    side = "behind" if skew > 0 else "ahead of"
    verdict = "wrong" if abs(skew) > _SKEW_WRONG else "warning"
    return Finding(None, "clock", verdict, f"this machine's clock is {abs(skew):.0f} s {side} {place}", _SET_CLOCK)


def time_sources(settings: Settings) -> list[str]:
    """URLs of the deployment's HTTP services, without secrets: object store, catalog, registry."""
    properties = settings.catalog.properties
    found = [properties.get("s3.endpoint"), properties.get("uri")]
    if settings.state_store is not None:
        found.append(settings.state_store.properties.get("s3.endpoint"))
    if settings.registry is not None:
        found += settings.registry.url or ()
        if settings.registry.address_file is not None:
            found.append(noted_address(settings.registry.address_file))
    plain = [value for value in found if isinstance(value, str) and "@" not in value]
    return list(dict.fromkeys(url for url in plain if url.startswith(("http://", "https://"))))


def http_skew(url: str) -> float | None:
    """Seconds by which the clock of an HTTP server is ahead of this machine's; None if it names no time."""
    # Only the time is read, and nothing secret is sent, so any certificate will do.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, method="HEAD")
    before = time.time()
    try:
        with urllib.request.urlopen(request, timeout=_HTTP_SECONDS, context=context) as response:
            said = response.headers.get("Date")
    except urllib.error.HTTPError as refusal:
        said = refusal.headers.get("Date")
    except (OSError, ValueError):
        return None
    after = time.time()
    try:
        theirs = parsedate_to_datetime(said or "").timestamp()
    except (TypeError, ValueError):
        return None
    # The header has whole seconds.
    if before - 1 <= theirs <= after:
        return 0.0
    return theirs - (after if theirs > after else before)


def newest_records(specs: list[StreamSpec], kafka: KafkaLog) -> dict[str, float]:
    """Seconds by which the newest record of each topic is ahead of this machine's clock; negative if it is older."""
    ahead: dict[str, float] = {}
    for spec in specs:
        with contextlib.suppress(FrazilError):
            topics = kafka.topics(spec.source)
            partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
            for partition, millis in kafka.newest_times(partitions).items():
                seconds = millis / 1000 - time.time()
                ahead[partition.topic] = max(seconds, ahead.get(partition.topic, seconds))
    return ahead


def check_dagster(home: Path) -> Finding:
    """Check that Dagster's storage can be read, and that its daemon has reported lately."""
    settings = home / "dagster.yaml"
    if not settings.exists():
        return Finding(None, "dagster", "unchecked", f"there is no instance in {home} yet", "frazil dev")
    if not _on_server(settings) and not all((home / name).exists() for name in DATABASES):
        return Finding(None, "dagster", "unchecked", f"the databases of {home} have not been made yet", "frazil dev")
    try:
        daemons, runs = within(_DAGSTER_SECONDS, "Dagster's storage", lambda: _ask_dagster(home))
    except Exception as problem:
        sentence = f"Dagster's storage of {home} cannot be read: {type(problem).__name__}: {first_line(problem)}"
        return Finding(None, "dagster", "wrong", sentence, f"read {settings}, then frazil dev")
    silent = [name for name, age in daemons.items() if age > _SILENT_SECONDS]
    stored = f"its storage answers ({runs})"
    if not daemons or silent:
        newest = min(daemons.values(), default=None)
        heard = "has never reported" if newest is None else f"last reported {newest:,.0f} s ago"
        sentence = f"{stored}; its daemon {heard}, so no supervisor watches the streams"
        return Finding(None, "dagster", "warning", sentence, "frazil dev, or start dagster-daemon")
    return Finding(None, "dagster", "ok", f"{stored}; its daemon reported {max(daemons.values()):.0f} s ago")


def _on_server(settings: Path) -> bool:
    """Whether Dagster's storage is a PostgreSQL server, instead of files on this machine."""
    with contextlib.suppress(yaml.YAMLError, OSError):
        document = yaml.safe_load(settings.read_text())
        return isinstance(document, dict) and "postgres" in (document.get("storage") or {})
    return False


def _ask_dagster(home: Path) -> tuple[dict[str, float], str]:
    import dagster as dg

    now = time.time()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        newest = instance.get_run_records(limit=1)
        shown = f"newest run {newest[0].create_timestamp:%Y-%m-%d %H:%M} UTC" if newest else "no run yet"
        # Daemons of earlier settings leave their heartbeats behind.
        wanted, beats = instance.get_required_daemon_types(), instance.get_daemon_heartbeats()
        return {name: now - beats[name].timestamp for name in wanted if name in beats}, shown


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
