"""Configuration of the local broker: one node, loopback only, small."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.ports import HOST, free_ports

_SHOWN_LINES = 12


class BrokerError(FrazilError):
    """The local broker did not start.

    Safe: Nothing was changed.
    Next: read the log that the message names; then `frazil up`
    """


def last_kafka_lines(text: str) -> str:
    """End of Kafka's output for a broker's error, indented, without Java's stack frames."""
    told = [line for line in text.splitlines() if line.strip() and not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
    return "\n".join(f"    {line}" for line in told[-_SHOWN_LINES:])


# The paths are relative: the broker runs in its own folder, whose name may then hold anything.
_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "data",
    # There is one node to hold a replica.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Fewer internal partitions: each is a folder with open files, to be looked through at every start.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    # A mistyped topic is an error, not a new topic.
    "auto.create.topics.enable": "false",
    # The default waits 3 s for more members before the first one may read.
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the controller refuses the broker until its session expires; the default makes that 9 s.
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "4000",
    # Records stay until their topic is deleted.
    "log.retention.ms": "-1",
    "message.max.bytes": str(20 * 1024 * 1024),
    "replica.fetch.max.bytes": str(20 * 1024 * 1024),
    # The default takes 128 MB of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

LOG4J2 = """\
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = broker.log
appender.file.filePattern = broker.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
# It prints every setting at every start.
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = WARN
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on loopback."""

    plain: int
    controller: int

    def all(self) -> list[int]:
        return [self.plain, self.controller]


def server_properties(ports: Ports, extra: Mapping[str, str]) -> str:
    """Return the text of `server.properties`; `extra` wins over what frazil would set."""
    plain = f"PLAINTEXT://{HOST}:{ports.plain}"
    own = {
        **_FIXED,
        # Static voters: the port may change from start to start, which a stored voter set would not follow.
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "advertised.listeners": plain,
        "listeners": f"{plain},CONTROLLER://{HOST}:{ports.controller}",
    }
    lines = [f"{key}={_escape(value)}\n" for key, value in {**own, **extra}.items()]
    return "# Written by frazil at every start of the local broker; only the ports are kept.\n" + "".join(lines)


def read_ports(text: str) -> Ports | None:
    """Return the ports of an earlier `server.properties`, or None if it has none to offer."""
    match = re.search(r"^listeners=(.*)$", text, re.MULTILINE)
    found = dict(re.findall(r"(\w+)://[^:,]*:(\d+)", match.group(1))) if match else {}
    if not {"PLAINTEXT", "CONTROLLER"} <= found.keys():
        return None
    return Ports(int(found["PLAINTEXT"]), int(found["CONTROLLER"]))


def choose_ports() -> Ports:
    """Return ports that were free just now."""
    plain, controller = free_ports(2)
    return Ports(plain, controller)


def new_cluster_id() -> str:
    """Return a random id in Kafka's notation: 16 bytes in URL-safe base64, which must not look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _escape(value: str) -> str:
    # Java reads the file as Latin-1 and takes a backslash as the start of an escape.
    return "".join(char if " " <= char <= "~" and char != "\\" else _unicode_escape(char) for char in value)


def _unicode_escape(char: str) -> str:
    code_units = char.encode("utf-16-be")
    return "".join(f"\\u{code_units[i]:02x}{code_units[i + 1]:02x}" for i in range(0, len(code_units), 2))


_FORMAT_DEADLINE_SECONDS = 180.0


def cluster_id(folder: Path) -> str | None:
    """Id of the cluster in the broker's folder; None before it is formatted."""
    try:
        text = (folder / "data" / "meta.properties").read_text()
    except FileNotFoundError:
        return None
    match = re.search(r"^cluster\.id=(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def format_storage(folder: Path, java: str, classpath: str) -> None:
    """Format the storage of a new cluster by `server.properties` in the folder.

    Raises:
        BrokerError: There are topics without the file that names their cluster, or Kafka's tool refused.
    """
    data = folder / "data"
    topics = sorted(each.name for each in data.glob("*-*/") if each.name != "__cluster_metadata-0")
    if topics:
        raise BrokerError(
            f"{data} holds {len(topics)} partitions ({topics[0]}, …), but not meta.properties, which names their"
            " cluster",
            fix=f"put {data / 'meta.properties'} back, or remove {data} with all that was produced",
        )
    # The tool would refuse the remains of an interrupted attempt.
    shutil.rmtree(data, ignore_errors=True)
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.tools.StorageTool", "format"]
    command += ["--cluster-id", new_cluster_id(), "--config", "server.properties"]
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_FORMAT_DEADLINE_SECONDS,
            check=False,
            umask=0o077,
        )
    except subprocess.TimeoutExpired:
        raise BrokerError(f"Formatting {data} took more than {_FORMAT_DEADLINE_SECONDS:.0f} s") from None
    if answer.returncode != 0:
        raise BrokerError(f"{data} could not be formatted:\n{last_kafka_lines(answer.stdout + answer.stderr)}")
