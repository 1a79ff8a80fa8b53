"""A broker that lets nobody do what no rule allows: TLS, passwords and tokens, and an authorizer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from jobs.local.broker.broker import LocalBroker
from tests.helpers.secure_listener import make_user, secure_listener
from tests.helpers.tls import Tls, make_tls
from tests.helpers.token_server import ISSUER, TokenServer, token_server

_OAUTH = "org.apache.kafka.common.security.oauthbearer."
Rule = tuple[str, str, str]
"""Who may do what on what: `("reader", "READ", "topic:payments")`; a name that ends in `*` is a prefix."""


@dataclass(frozen=True, slots=True)
class GuardedBroker:
    """Addresses and files of the broker.

    Attributes:
        address: Address for those who must prove themselves (SASL_SSL).
        open_address: Address without a login, where everything is allowed.
        tls: Certificates.
        tokens: Server that issues tokens.
        folder: Folder of the broker.
        admin: User who may do everything.
    """

    address: str
    open_address: str
    tls: Tls
    tokens: TokenServer
    folder: Path
    admin: AdminClient

    def topic(self, name: str, partitions: int = 2) -> None:
        """Make a topic."""
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)

    def user(self, name: str, password: str) -> None:
        """Make a user, or change its password."""
        make_user(self.admin, name, password)

    def allow(self, rules: Iterable[Rule]) -> None:
        """Add rules."""
        for future in self.admin.create_acls([_binding(*rule) for rule in rules]).values():
            future.result(30)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The positions of a group."""
        answer = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        return {(each.topic, each.partition): each.offset for each in answer.topic_partitions or ()}


@contextlib.contextmanager
def guarded_broker(folder: Path, *, token_seconds: int = 5, certificates: bool = False) -> Iterator[GuardedBroker]:
    """Run it until the end.

    Args:
        folder: Folder for all files.
        token_seconds: Lifetime of tokens.
        certificates: Whether clients prove themselves by one that its authority has signed, and by nothing else.
    """
    tls = make_tls(folder)
    with token_server(folder, tls.keystore, {}, token_seconds) as tokens:
        listener = "listener.name.sasl_ssl.oauthbearer"
        address, properties = secure_listener(folder / "broker", tls.keystore)
        properties |= {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            f"{listener}.sasl.jaas.config": f"{_OAUTH}OAuthBearerLoginModule required;",
            f"{listener}.sasl.server.callback.handler.class": f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": tokens.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            # Clients that do not prove themselves again in time are cut off.
            f"{listener}.connections.max.reauth.ms": "60000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }
        if certificates:
            secure = "listener.name.sasl_ssl.ssl"
            properties |= {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SSL",
                f"{secure}.client.auth": "required",
                f"{secure}.truststore.type": "PEM",
                f"{secure}.truststore.location": str(tls.ca),
            }
        broker = LocalBroker(folder / "broker", properties=properties)
        with _java_options(f"-D{_ALLOWED}.urls={tokens.keys.as_uri()} -D{_ALLOWED}.files={tokens.keys}"):
            broker.start()
        try:
            open_address = broker.status().address
            assert open_address is not None
            admin = AdminClient({"bootstrap.servers": open_address, "log_level": 0})
            yield GuardedBroker(address, open_address, tls, tokens, broker.folder, admin)
        finally:
            broker.stop()


_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"


@contextlib.contextmanager
def _java_options(text: str) -> Iterator[None]:
    former = os.environ.get("JDK_JAVA_OPTIONS")
    os.environ["JDK_JAVA_OPTIONS"] = f"{former or ''} {text}".strip()
    try:
        yield
    finally:
        os.environ.pop("JDK_JAVA_OPTIONS")
        if former is not None:
            os.environ["JDK_JAVA_OPTIONS"] = former


def _binding(user: str, operation: str, resource: str) -> AclBinding:
    kind, _, name = resource.partition(":")
    pattern = ResourcePatternType.PREFIXED if name.endswith("*") and name != "*" else ResourcePatternType.LITERAL
    kinds = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transaction": ResourceType.TRANSACTIONAL_ID}
    kinds |= {"cluster": ResourceType.BROKER}
    return AclBinding(
        kinds[kind],
        name.removesuffix("*") if pattern == ResourcePatternType.PREFIXED else name,
        pattern,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
