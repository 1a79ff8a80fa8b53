"""Identity of an Iceberg sink: its generation, its groups, its control topic, and the branches that it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.tables.commit.history.sink_record import Generation, floor_key

# Both call their class IcebergSinkConnector.
_PACKAGES: tuple[tuple[str, Generation], ...] = (
    ("org.apache.iceberg.connect.", "apache"),
    ("io.tabular.iceberg.connect.", "tabular"),
)
_PORT = re.compile(r":\d+$")
_DEFAULT_PORT = 9092
_CONTROL_TOPIC = "control-iceberg"
_TABULAR_GROUP = "cg-control-"
REPORT = "import-report.json"


class UnknownSinkError(FrazilError):
    """A connector is no Iceberg sink, or its groups and control topic are unknown.

    Safe: Nothing was changed.
    Next: `frazil takeover S --from-connect NAME --connect URL`
    """


@dataclass(frozen=True, slots=True)
class Sink:
    """Identity of an Iceberg sink.

    Attributes:
        name: Name of the connector.
        member_group: Consumer group of its tasks; it must be empty.
        offset_group: Group whose committed offsets are the truth.
        event_group: Name under which it writes control events and keeps its floor.
        topics: Topics that it reads; empty if they are not known.
        dynamic: Whether records name their tables.
        branches: Branch of each table that does not go to `branch`.
        branch: Branch that it commits to.
        control_brokers: Addresses of the brokers with its control topic, as its own configuration names them; empty if
            the worker's configuration does.
        source_brokers: Addresses of the brokers with its topics, as its own configuration names them; empty if the
            worker's configuration does.
    """

    name: str
    generation: Generation
    member_group: str
    offset_group: str
    event_group: str
    control_topic: str
    topics: tuple[str, ...] = ()
    dynamic: bool = False
    branch: str = MAIN_BRANCH
    branches: Mapping[str, str] = field(default_factory=dict)
    control_brokers: frozenset[str] = frozenset()
    source_brokers: frozenset[str] = frozenset()

    @property
    def floor_key(self) -> str:
        """Key of snapshot summaries with its floor."""
        return floor_key(self.control_topic, self.event_group)

    @property
    def coordinator_group(self) -> str:
        """Group with the offsets of the control topic through which all tables are committed."""
        return f"{self.event_group}-coord"

    def branch_of(self, table: str) -> str:
        """Branch of a table that it commits to."""
        return self.branches.get(table, self.branch)

    @property
    def described(self) -> str:
        """The sink in a sentence."""
        return f"connector {self.name} (group {self.offset_group}, control topic {self.control_topic})"


def broker_addresses(servers: str) -> frozenset[str]:
    """Addresses in a value of `bootstrap.servers`, each as `host:port`; empty if the value is a placeholder."""
    if "${" in servers:
        return frozenset()
    hosts = (server.strip().rpartition("://")[2].lower() for server in servers.split(","))
    return frozenset(host if _PORT.search(host) else f"{host}:{_DEFAULT_PORT}" for host in hosts if host)


def connect_group(name: str) -> str:
    """Group that Kafka Connect gives the tasks of a connector, unless its configuration names another."""
    return f"connect-{name}"


def sink_of(name: str, generation: Generation, *, group: str | None, control_topic: str | None, **more: Any) -> Sink:
    """A sink by its generation, with what differs from the defaults.

    Args:
        group: Apache's sink: its Connect group. Tabular's: its control group.
        more: Further attributes of `Sink`.
    """
    topic = control_topic or _CONTROL_TOPIC
    if generation == "tabular":
        control_group = group or f"{_TABULAR_GROUP}{name}"
        groups = (more.pop("member_group", connect_group(name)), control_group, control_group)
    else:
        event_group = group or connect_group(name)
        member_group = more.pop("member_group", event_group)
        groups = (member_group, member_group, event_group)
    return Sink(name, generation, *groups, topic, **more)


def _generation(class_: str) -> Generation | None:
    for package, generation in _PACKAGES:
        if class_.startswith(package):
            return generation
    return None


def sink_of_config(name: str, config: Mapping[str, str]) -> Sink:
    """A sink by its configuration, as the worker has it.

    Raises:
        UnknownSinkError: The connector is no Iceberg sink.
    """
    class_ = config.get("connector.class", "")
    generation = _generation(class_)
    if generation is None:
        raise UnknownSinkError(
            f"connector {name} is {class_ or 'of no class'}, and no Iceberg sink: frazil cannot find its position.",
            fix="end the connector, and write its offsets in source.start.offsets of the stream's file",
        )
    branches = {
        key.removeprefix("iceberg.table.").removesuffix(".commit-branch"): value
        for key, value in config.items()
        if key.startswith("iceberg.table.") and key.endswith(".commit-branch")
    }
    group_key = "iceberg.control.group-id" if generation == "tabular" else "iceberg.connect.group-id"
    more: dict[str, Any] = {"branches": branches}
    if override := config.get("consumer.override.group.id"):
        more["member_group"] = override
    return sink_of(
        name,
        generation,
        group=config.get(group_key),
        control_topic=config.get("iceberg.control.topic"),
        topics=tuple(topic.strip() for topic in config.get("topics", "").split(",") if topic.strip()),
        dynamic=config.get("iceberg.tables.dynamic-enabled", "").lower() == "true",
        branch=config.get("iceberg.tables.default-commit-branch") or MAIN_BRANCH,
        control_brokers=broker_addresses(config.get("iceberg.kafka.bootstrap.servers", "")),
        source_brokers=broker_addresses(config.get("consumer.override.bootstrap.servers", "")),
        **more,
    )


def with_options(sink: Sink, group: str | None, control_topic: str | None) -> Sink:
    """A worker's sink with the names that the worker has as references, such as `${env:TOPIC}`.

    Args:
        group, control_topic: Values of the command's options; None without them.

    Raises:
        UnknownSinkError: A reference has no option, or an option contradicts the worker.
    """
    given: dict[str, str] = {}
    for option, value, attributes in (
        ("--group", group, ("member_group", "offset_group", "event_group")),
        ("--control-topic", control_topic, ("control_topic",)),
    ):
        known = {attribute: str(getattr(sink, attribute)) for attribute in attributes}
        references = [attribute for attribute, name in known.items() if "${" in name]
        names = ", ".join(dict.fromkeys(known.values()))
        if references and value is None:
            raise UnknownSinkError(
                f"the worker has {names} for connector {sink.name}, a reference that it does not resolve.",
                fix=f"the same command with {option} NAME",
            )
        if value is not None and not references and value not in known.values():
            raise UnknownSinkError(
                f"{option} {value} is not what the worker has for connector {sink.name}: {names}.",
                fix=f"leave {option} out; or leave --connect out, and see that nobody starts the connector",
            )
        given |= {attribute: str(value) for attribute in references}
    return replace(sink, **given)


def sink_of_report(name: str, path: Path) -> Sink | None:
    """A sink by the report of `frazil import`; None if there is no report, or it does not name the connector.

    Raises:
        UnknownSinkError: The report cannot be read, or its connector is no Iceberg sink.
    """
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        entries = [connector for connector in document["connectors"] if connector.get("name") == name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UnknownSinkError(
            f"{path} cannot be read as a report of `frazil import` ({type(problem).__name__}).",
            fix="run frazil import again; or give --group and --control-topic",
        ) from problem
    if not entries:
        return None
    entry = entries[0]
    facts = entry.get("takeover") or {}
    group, topic = facts.get("group"), facts.get("control_topic")
    if entry.get("family") == "iceberg-sink" and facts and not (group and topic):
        raise UnknownSinkError(
            f"{path}: the group or the control topic of connector {name} is a template, or stands elsewhere.",
            fix="name both: --group GROUP --control-topic TOPIC",
        )
    if not group or not topic:
        raise UnknownSinkError(
            f"{path}: connector {name} is no Iceberg sink, so its position is not known.",
            fix="end the connector, and write its offsets in source.start.offsets of the stream's file",
        )
    label = str(facts.get("generation") or entry.get("generation") or "").lower()
    generation: Generation = "tabular" if label.startswith("tabular") else "apache"
    more: dict[str, Any] = {
        key: facts[key] for key in ("member_group", "dynamic", "branch", "branches") if facts.get(key)
    }
    topics = tuple(facts.get("topics") or ())
    return sink_of(name, generation, group=str(group), control_topic=str(topic), topics=topics, **more)
