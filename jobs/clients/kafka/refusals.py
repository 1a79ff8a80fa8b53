"""Refusals of brokers: whether a failed login is one, and the rule that whoever lacks a right has to be given."""

from __future__ import annotations

import re
import shlex

from confluent_kafka import KafkaError

from jobs.config.services.security import KafkaSecurity

LOGIN_CODES = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""What a client says of a login that failed."""

# A broker's answer to a token that has just run out, or to a login that is renewed while it ends the connection.
_PASSING = ('"status":"invalid_token"', "Request not valid in current SASL state")
# What a broker says, in the middle of TLS, of a client's certificate that is missing or that it does not take.
_CERTIFICATE_ALERT = re.compile(r"alert (bad certificate|certificate required|unknown ca|certificate (un|exp|rev)\w+)")
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
# What an identity provider answers to somebody whom it does not know, or who asks for what he may not have (RFC 6749).
_UNKNOWN_CLIENT = ("invalid_client", "unauthorized_client", "invalid_scope", "invalid_request", "access_denied")

_RESOURCES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
UNKNOWN_USER = "User:…"


def is_refusal(error: KafkaError) -> bool:
    """Whether waiting does not help: a wrong password, a certificate, a client that the identity provider refuses.

    A token that has run out, and an identity provider that is away, pass by themselves.
    """
    said = error.str()
    if _CERTIFICATE_ALERT.search(said):
        return True
    if error.code() not in LOGIN_CODES:
        return False
    if _NO_TOKEN in said:
        return any(word in said for word in _UNKNOWN_CLIENT)
    return not any(text in said for text in _PASSING)


def lacks_right(error: KafkaError) -> bool:
    """Whether the brokers know who asks, and have no rule that allows it."""
    return error.code() in _RESOURCES


def user_of(security: KafkaSecurity | None) -> str:
    """The user as rules of the brokers name it, where the settings show it."""
    # Whom a token stands for its identity provider says, and which of that the broker takes (`sub`), the broker.
    user = None if security is None or security.oauth else security.user
    return f"User:{user}" if isinstance(user, str) and user else UNKNOWN_USER


def missing_rule(error: KafkaError, servers: str, user: str, operations: tuple[str, ...], name: str) -> tuple[str, str]:
    """What is missing as a sentence's end, and the command that adds it.

    Args:
        error: As `lacks_right` knows it.
        servers: Of the brokers.
        user: As `user_of` gives it.
        operations: That the user is to be allowed: `("Read",)`.
        name: Of the topic, the group or the transactional id that it is about.
    """
    resource = _RESOURCES[error.code()]
    on = "--cluster" if resource == "cluster" else f"--{resource} {shlex.quote(name)}"
    allowed = " ".join(f"--operation {each}" for each in operations)
    what = "the cluster" if resource == "cluster" else f"{resource.replace('-', ' ')} {name}"
    whom = "the user" if user == UNKNOWN_USER else user
    return (
        f"{whom} has no right to {' or '.join(operations)} on {what}",
        f"kafka-acls.sh --bootstrap-server {servers} --command-config admin.properties --add "
        f"--allow-principal {shlex.quote(user)} {allowed} {on}",
    )
