"""Which refusals of brokers pass by themselves, and the rule that another one lacks."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from jobs.clients.kafka.refusals import (
    is_refusal,
    lacks_right,
    missing_rule,
    user_of,
)
from jobs.config.services.security import KafkaSecurity


@pytest.mark.parametrize(
    ("code", "said", "refused"),
    [
        (KafkaError._AUTHENTICATION, "SASL SCRAM-SHA-512 authentication failed", True),
        (KafkaError._SSL, "certificate verify failed", True),
        (KafkaError._TRANSPORT, "Connection refused", False),
        (
            KafkaError._TRANSPORT,
            "SSL routines::ssl/tls alert bad certificate: SSL alert number 42",
            True,
        ),
        (KafkaError._TRANSPORT, "SSL routines::tlsv13 alert certificate required: SSL alert number 116", True),
        (KafkaError._TRANSPORT, "SSL routines::sslv3 alert handshake failure", False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed", False),
        (KafkaError._AUTHENTICATION, 'SASL authentication error: {"status":"invalid_token"} (after 3ms)', False),
        (
            KafkaError._AUTHENTICATION,
            "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state",
            False,
        ),
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: <html>503</html>", False),
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: Could not connect to server", False),
        (
            KafkaError._AUTHENTICATION,
            'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}',
            True,
        ),
    ],
)
def test_whether_waiting_helps(code: int, said: str, refused: bool) -> None:
    assert is_refusal(KafkaError(code, said)) is refused


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        (None, "User:…"),
        ({"protocol": "SSL"}, "User:…"),
        ({"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": "${env:A}"}, "User:me"),
        ({"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "${env:B}", "password": "${env:A}"}, "User:…"),
        (
            {
                "protocol": "SASL_SSL",
                "mechanism": "OAUTHBEARER",
                "oauth": {"token_url": "https://idp", "client_id": "it", "client_secret": "${env:A}"},
            },
            "User:…",
        ),
    ],
)
def test_the_user_is_told_where_the_settings_show_it(fields: dict[str, Any] | None, user: str) -> None:
    assert user_of(None if fields is None else KafkaSecurity.model_validate(fields)) == user


@pytest.mark.parametrize(
    ("code", "on", "what"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "--topic pay.ments", "topic pay.ments"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "--group pay.ments", "group pay.ments"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "--transactional-id pay.ments",
            "transactional id pay.ments",
        ),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "--cluster", "the cluster"),
    ],
)
def test_the_rule_that_is_missing(code: int, on: str, what: str) -> None:
    error = KafkaError(code)
    assert lacks_right(error)
    told, command = missing_rule(error, "one:9092", "User:me", ("Write", "Describe"), "pay.ments")
    assert told == f"User:me has no right to Write or Describe on {what}"
    assert command == (
        "kafka-acls.sh --bootstrap-server one:9092 --command-config admin.properties --add "
        "--allow-principal User:me --operation Write "
        f"--operation Describe {on}"
    )
