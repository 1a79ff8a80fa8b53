"""Refusals of brokers: failed logins that waiting does not fix, and missing ACLs."""

from __future__ import annotations

import re
import shlex

from confluent_kafka import KafkaError

from jobs.config.services.security import KafkaSecurity

LOGIN_CODES = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Error codes of a client for a failed login."""

# A broker's answers to a token that has just expired, or to a login renewed while the broker closes the connection.
_PASSING = ('"status":"invalid_token"', "Request not valid in current SASL state")
# A broker's TLS alerts for a client certificate that is missing or not accepted.
_CERTIFICATE_ALERT = re.compile(r"alert (bad certificate|certificate required|unknown ca|certificate (un|exp|rev)\w+)")
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
# An identity provider's errors for an unknown client or an invalid request (RFC 6749).
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

    An expired token or an unavailable identity provider is no refusal.
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
    """Whether the user is logged in, but no ACL allows the request."""
    return error.code() in _RESOURCES


def user_of(security: KafkaSecurity | None) -> str:
    """Return the user's name in the brokers' ACLs, if the settings show it."""
    # The user of a token is known only to the identity provider and the broker, which chooses a claim (`sub`).
    user = None if security is None or security.oauth else security.user
    return f"User:{user}" if isinstance(user, str) and user else UNKNOWN_USER


def missing_rule(error: KafkaError, servers: str, user: str, operations: tuple[str, ...], name: str) -> tuple[str, str]:
    """Return the missing ACL as the end of a sentence, and the command that adds it.

    Args:
        error: Error for which `lacks_right` is true.
        servers: Addresses of the brokers.
        user: Result of `user_of`.
        operations: Operations to allow, such as `("Read",)`.
        name: Name of the topic, group or transactional id.
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
