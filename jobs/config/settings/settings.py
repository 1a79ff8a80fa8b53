"""Settings of a deployment in ``frazil.yaml``: Kafka, the catalog, Spark, the state and others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from jobs.base.errors import FrazilError
from jobs.config.documents.base import LocalPath, Problems, SpecModel
from jobs.config.documents.secrets import Properties, Secret, revealed
from jobs.config.documents.units import Duration
from jobs.config.documents.validation import load_model
from jobs.config.services.catalog import CatalogSettings
from jobs.config.services.drivers import DriversSettings
from jobs.config.services.kafka_options import KafkaOptions, OptionValue, option_problems
from jobs.config.services.maintenance_policy import Maintenance
from jobs.config.services.monitoring import AlertsSettings, MetricsSettings
from jobs.config.services.registry import LINES_TO_ADD, RegistrySettings
from jobs.config.services.security import KafkaSecurity
from jobs.config.services.services import (
    SourceName,
    SourceSettings,
    State,
    StateSettings,
)
from jobs.config.services.trigger import GroupsSettings
from jobs.config.values.fields import BootstrapServers, TableName

SETTINGS_FILE = "frazil.yaml"
EMBEDDED_FOLDER = ".frazil"
UI_ADDRESS = "127.0.0.1"


def _matching(pattern: str, message: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


class LocalBrokerDown(FrazilError):
    """The local broker is not running.

    Safe: Nothing was changed.
    Next: `frazil up`
    """


class KafkaAdmin(SpecModel):
    """Who asks about topics, makes them, and commits to consumer groups, if it is not the identity that reads records.

    Args:
        security: How the administration client proves itself.
    """

    example = "{security: {protocol: SSL}}"

    security: KafkaSecurity


class KafkaSettings(SpecModel):
    """Where Kafka is, and how to speak to it.

    Args:
        bootstrap_servers: Brokers as ``host:port``, several as a list or with commas. Without it, the local broker.
        security: How clients prove themselves. Without it, plain text.
        isolation: Whether records of open and aborted transactions are read.
        request_timeout: Timeout of a request about topics and offsets. A task waits twice as long for its next record.
        address_file: File in which the local broker notes its address. Refused beside ``bootstrap_servers``.
        options: Options of Kafka's clients, by Kafka's names. A stream's ``source.options`` go over them.
        admin: Another identity for administration. Without it, ``security`` counts.
    """

    example = "{bootstrap_servers: 'broker:9092', options: {client.rack: rack-a}}"

    bootstrap_servers: BootstrapServers | None = None
    security: KafkaSecurity | None = None
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    request_timeout: Duration = timedelta(seconds=20)
    address_file: LocalPath | None = None
    options: KafkaOptions = Field(default_factory=dict)
    admin: KafkaAdmin | None = None

    @property
    def admin_security(self) -> KafkaSecurity | None:
        """Security of clients that ask about topics, create them, or commit to a consumer group."""
        return self.admin.security if self.admin is not None else self.security

    def with_options(self, options: Mapping[str, OptionValue]) -> KafkaSettings:
        """Returns these settings with a stream's options over theirs.

        Raises:
            FrazilError: Options of the two files contradict each other.
        """
        if not options:
            return self
        together = dict(sorted({**self.options, **options}.items()))
        if problems := option_problems(together):
            raise FrazilError(
                "source.options of the stream's file and kafka.options of the settings disagree: "
                + "; ".join(f"{name}: {text}" for name, text in problems),
                fix="correct one of the two files, then frazil validate",
            )
        return self.model_copy(update={"options": together})

    @property
    def is_embedded(self) -> bool:
        """Whether this is the local broker that ``frazil up`` starts."""
        return self.address_file is not None

    @property
    def remedy(self) -> str:
        """Next step if the brokers do not answer."""
        if self.is_embedded:
            return "frazil up"
        urls = {each.token_url for each in (self.security, self.admin_security) if each and each.token_url}
        tokens = "".join(f", and that {url} issues tokens" for url in sorted(urls))
        return f"check that the brokers run and kafka.bootstrap_servers in {SETTINGS_FILE} names them{tokens}"

    def require_bootstrap(self) -> str:
        """Returns the servers to connect to; for the local broker its present address.

        Raises:
            LocalBrokerDown: The settings name the local broker, which is not running.
        """
        servers = self.bootstrap_servers if self.address_file is None else _noted_address(self.address_file)
        if servers is None:
            raise LocalBrokerDown("The local broker is not running.", fix="frazil up")
        return servers


def _ip_address(value: object) -> str:
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        raise ValueError("must be an IP address of this machine, such as 127.0.0.1, or 0.0.0.0 for all") from None


class SparkSettings(SpecModel):
    """Spark's own settings. ``conf`` may refer to secrets, like the catalog's properties.

    Args:
        master: Spark's master. A batch has as many tasks as the master has cores.
        driver_memory: Heap of a driver's JVM.
        ui_address: IP address on which Spark's UI listens, without a login.
        conf: Spark's settings, over frazil's own. Secrets are references.
    """

    example = "{master: 'local[2]'}"

    master: Annotated[str, _matching(r"\S+", "must be a Spark master, such as local[2]")] = "local[2]"
    driver_memory: Annotated[str, _matching(r"[1-9][0-9]*[kmgtKMGT]", "must be a size, such as 512m or 1g")] = "1g"
    ui_address: Annotated[str, BeforeValidator(_ip_address)] = UI_ADDRESS
    conf: Properties = Field(default_factory=dict)

    def revealed_conf(self) -> dict[str, str]:
        """Returns ``conf`` with the secrets' present values; see `secrets.revealed`."""
        return revealed(self.conf)


class LedgerSettings(SpecModel):
    """The table that keeps the stamps of all streams of the catalog.

    Args:
        table: Name of the ledger table.
    """

    table: TableName = "frazil.ledger"


class SettingsFile(SpecModel):
    """What may stand in ``frazil.yaml``. A section that is left out is the embedded default's.

    Args:
        kafka: Where Kafka is. Without it, the local broker.
        registry: The schema registry. Without it, none, or the local one.
        catalog: The Iceberg catalog. Without it, SQLite under ``.frazil/``.
        spark: Spark's settings.
        state: Folder of the state, or a mapping with a store that several machines share. Without it,
            ``.frazil/state``.
        groups: Driver groups.
        drivers: What starts drivers.
        lease_ttl: Time that a driver's lease holds without being renewed.
        ledger: The ledger.
        maintenance: How tables are kept healthy, also tables that no stream writes.
        sources: Databases that mirrors are compared with, by name.
        alerts: Who receives messages about streams that need somebody.
        metrics: How Prometheus finds the drivers of a machine.
    """

    example = "{sources: {shop: {url: 'postgresql://reader@db:5432/shop'}}, lease_ttl: 30s}"

    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings | None = None
    catalog: CatalogSettings | None = None
    spark: SparkSettings = SparkSettings()
    state: State = None
    groups: GroupsSettings = GroupsSettings()
    drivers: DriversSettings = DriversSettings()
    lease_ttl: Duration = timedelta(seconds=30)
    ledger: LedgerSettings = LedgerSettings()
    maintenance: Maintenance = Maintenance()
    sources: dict[SourceName, SourceSettings] = Field(default_factory=dict)
    alerts: AlertsSettings = AlertsSettings()
    metrics: MetricsSettings = MetricsSettings()

    def _problems(self) -> Problems:
        if self.kafka.bootstrap_servers is not None and self.kafka.address_file is not None:
            yield ("kafka", "address_file"), "is for the local broker; leave it out beside bootstrap_servers"
        if self.drivers.remote and (self.state is None or self.state.store is None):
            said = f"{self.drivers.launcher} starts drivers on other machines, which need the state of this deployment"
            yield ("drivers", "launcher"), f"{said}; write state: {{store: s3://…}} or postgresql://…"


class Settings(SpecModel):
    """The settings in effect. No form of them (repr, dump, JSON, pickle) contains a secret's value.

    Args:
        home: Folder of the deployment, with ``.frazil/`` and ``streams/``.
        state: Folder for files of this machine; without `state_store` also for the deployment's documents.
        state_store: Store of the documents that all machines of the deployment share; None for the folder.
        lease_ttl: How long a driver's lease holds without renewal.
        registry: The schema registry, if there is one.
        groups: Which streams share a driver.
        drivers: What starts drivers.
        sources: The databases that mirrors are compared with, by name.
        alerts: Who receives messages about streams.
        metrics: How Prometheus finds drivers.
    """

    home: Path
    kafka: KafkaSettings
    catalog: CatalogSettings
    spark: SparkSettings
    state: Path
    lease_ttl: Duration
    registry: RegistrySettings | None = None
    ledger: LedgerSettings = LedgerSettings()
    maintenance: Maintenance = Maintenance()
    state_store: StateSettings | None = None
    groups: GroupsSettings = GroupsSettings()
    drivers: DriversSettings = DriversSettings()
    sources: dict[SourceName, SourceSettings] = Field(default_factory=dict)
    alerts: AlertsSettings = AlertsSettings()
    metrics: MetricsSettings = MetricsSettings()

    @property
    def is_embedded(self) -> bool:
        """Whether both the broker and the catalog are the embedded ones."""
        return self.kafka.is_embedded and self.catalog == embedded_catalog(self.home)

    @property
    def registry_fix(self) -> str:
        """Next step if a stream needs a registry and the settings have none."""
        return "frazil up" if self.kafka.is_embedded else LINES_TO_ADD

    @classmethod
    def embedded(cls, home: Path) -> Settings:
        """Returns the settings without any file: everything is under ``.frazil/`` of the home folder."""
        return _in_effect(SettingsFile(), home)


def embedded_catalog(home: Path) -> CatalogSettings:
    """Returns the embedded catalog: SQLite, with its warehouse in a local folder."""
    folder = home.absolute() / EMBEDDED_FOLDER
    return CatalogSettings(
        name="frazil",
        properties={"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"},
    )


def load_settings(path: Path | None, *, home: Path) -> Settings:
    """Reads the settings: the given file, else ``frazil.yaml`` in the home folder, else the embedded default.

    Raises:
        SpecError: The file is missing or has problems; the error has all of them, and quotes no values.
    """
    if path is None:
        path = home / SETTINGS_FILE
        if not path.exists():
            return Settings.embedded(home)
    file, _ = load_model(path, SettingsFile, show_values=False)
    return _in_effect(file, home)


def _in_effect(file: SettingsFile, home: Path) -> Settings:
    home = home.absolute()
    kafka = file.kafka
    if kafka.bootstrap_servers is None:
        address_file = kafka.address_file or home / EMBEDDED_FOLDER / "broker" / "address"
        kafka = kafka.model_copy(
            update={"address_file": address_file, "bootstrap_servers": _noted_address(address_file)}
        )
    return Settings(
        home=home,
        kafka=kafka,
        registry=file.registry or _local_registry(kafka, home),
        catalog=file.catalog or embedded_catalog(home),
        spark=file.spark,
        state=(file.state and file.state.folder) or home / EMBEDDED_FOLDER / "state",
        state_store=file.state if file.state is not None and file.state.store is not None else None,
        groups=file.groups,
        drivers=file.drivers,
        lease_ttl=file.lease_ttl,
        ledger=file.ledger,
        maintenance=file.maintenance,
        sources=file.sources,
        alerts=file.alerts,
        metrics=file.metrics,
    )


def _local_registry(kafka: KafkaSettings, home: Path) -> RegistrySettings | None:
    """Return the local registry, if one was started in this home beside the local broker."""
    folder = home / EMBEDDED_FOLDER / "registry"
    return RegistrySettings(address_file=folder / "address") if kafka.is_embedded and folder.is_dir() else None


def _noted_address(address_file: Path) -> str | None:
    try:
        return address_file.read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None


def secret_references(settings: Settings, *, sources: bool = True) -> Iterator[Secret]:
    """Yields every secret of the settings, so that ``frazil validate`` can report which are not available.

    Args:
        sources: Whether to include secrets of `sources` and `alerts`, which no driver uses.
    """
    yield from settings.catalog.secrets
    yield from (value for value in settings.spark.conf.values() if isinstance(value, Secret))
    if security := settings.kafka.security:
        yield from security.secrets
    if admin := settings.kafka.admin:
        yield from admin.security.secrets
    if settings.registry is not None:
        yield from settings.registry.secrets
    if settings.state_store is not None:
        yield from settings.state_store.secrets
    if sources:
        for source in settings.sources.values():
            yield from source.secrets
        yield from settings.alerts.secrets
