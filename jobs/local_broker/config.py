"""Configuration of the local broker: one node, loopback only, small."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.system.ports import HOST, free_ports

SCRAM_MECHANISM = "SCRAM-SHA-512"

# The paths are relative: the broker runs in its own folder, whose name may then hold anything.
_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
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
    # After a kill the controller refuses the broker until its session is over; the default makes that 9 s.
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "4000",
    # What was produced here stays until its topic is deleted.
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
class SecureListener:
    """A second way in, with encryption and passwords, for trying out `kafka.security`.

    Args:
        keystore: PEM file with the private key (PKCS#8, not encrypted) and the certificate chain; the certificate
            must be for 127.0.0.1.
        users: SCRAM-SHA-512 users, name → password. They are stored when the folder is new, through a command line
            that every user of the machine can read: nothing that matters belongs in here.
    """

    keystore: Path
    users: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on loopback; `secure` is 0 without a secure listener."""

    plain: int
    controller: int
    secure: int

    def all(self) -> list[int]:
        return [port for port in (self.plain, self.controller, self.secure) if port]


def server_properties(ports: Ports, secure: SecureListener | None, extra: Mapping[str, str]) -> str:
    """Return the text of `server.properties`; `extra` wins over what frazil would set."""
    listeners = {"PLAINTEXT": ports.plain} | ({"SASL_SSL": ports.secure} if secure else {})
    own = {
        **_FIXED,
        # Static voters: the port may change from start to start, which a stored voter set would not follow.
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "advertised.listeners": _listeners(listeners),
        "listeners": _listeners({**listeners, "CONTROLLER": ports.controller}),
    }
    if secure:
        own |= {
            "sasl.enabled.mechanisms": SCRAM_MECHANISM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
            "listener.name.sasl_ssl.ssl.keystore.location": str(secure.keystore.absolute()),
        }
    lines = [f"{key}={_escape(value)}\n" for key, value in {**own, **extra}.items()]
    return "# Written by frazil at every start of the local broker; only the ports are kept.\n" + "".join(lines)


def read_ports(text: str, *, secure: bool) -> Ports | None:
    """Return the ports of an earlier `server.properties`, or None if it has none to offer."""
    match = re.search(r"^listeners=(.*)$", text, re.MULTILINE)
    found = dict(re.findall(r"(\w+)://[^:,]*:(\d+)", match.group(1))) if match else {}
    if not {"PLAINTEXT", "CONTROLLER"} <= found.keys() or (secure and "SASL_SSL" not in found):
        return None
    return Ports(int(found["PLAINTEXT"]), int(found["CONTROLLER"]), int(found["SASL_SSL"]) if secure else 0)


def choose_ports(*, secure: bool) -> Ports:
    """Return ports that were free just now."""
    plain, controller, *others = free_ports(3 if secure else 2)
    return Ports(plain, controller, others[0] if secure else 0)


def new_cluster_id() -> str:
    """Return a random id in Kafka's notation: 16 bytes in URL-safe base64, which must not look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def _escape(value: str) -> str:
    # Java reads the file as Latin-1 and takes a backslash as the start of an escape.
    return "".join(char if " " <= char <= "~" and char != "\\" else _unicode_escape(char) for char in value)


def _unicode_escape(char: str) -> str:
    code_units = char.encode("utf-16-be")
    return "".join(f"\\u{code_units[i]:02x}{code_units[i + 1]:02x}" for i in range(0, len(code_units), 2))
