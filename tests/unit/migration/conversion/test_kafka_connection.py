"""Section `kafka`: security of each kind of client, and secrets that become references."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.config.services.security import KafkaSecurity
from jobs.migration.connectors.model import Place, Worker, settings_of
from jobs.migration.conversion.account import Account
from jobs.migration.conversion.draft import Draft, SettingsDraft, Sources
from jobs.migration.conversion.kafka_connection import connect_kafka, jaas_options
from tests.unit.migration.conversion.drafts import connector_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def drafted(keys: dict[str, str], worker: dict[str, str] | None = None) -> Draft:
    account = None
    if worker is not None:
        settings, _ = settings_of((key, value, Place("w")) for key, value in worker.items())
        account = Account(Worker("w", settings, Place("w")).settings, shared=True)
    draft = Draft(connector_of("C", keys), Sources(()), SettingsDraft(), account)
    connect_kafka(draft)
    return draft


def security(draft: Draft) -> dict[str, Any]:
    found = draft.settings.get("kafka", "security")
    KafkaSecurity.model_validate(found)
    return found


def override(**keys: str) -> dict[str, str]:
    return {f"consumer.override.{key.replace('_', '.')}": value for key, value in keys.items()}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p;q";', {"username": "u", "password": "p;q"}),
        (f"{PLAIN} required username='u' password=p;", {"username": "u", "password": "p"}),
        (f'{PLAIN}  required\n username="u\\"v"\n password="";', {"username": 'u"v'}),
        (f'{PLAIN} REQUIRED username="u";', {}),
        ("", {}),
        ("${file:/x:jaas}", {}),
    ],
)
def test_options_of_a_login_module(text: str, options: dict[str, str]) -> None:
    found = jaas_options(text)
    assert {key: value for key, value in found.items() if value} == options


def test_the_connectors_own_security_counts_before_the_workers() -> None:
    own = override(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{PLAIN} required username="own" password="hunter2";',
    )
    draft = drafted(own, {"bootstrap.servers": "a:9092, b:9092", "security.protocol": "SSL"})
    assert security(draft) == {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "user": "own",
        "password": "${env:KAFKA_PASSWORD}",
    }
    assert draft.settings.get("kafka", "bootstrap_servers") == ["a:9092", "b:9092"]
    assert draft.questions == []
    assert "hunter2" not in repr(draft.settings.document) + repr(draft.settings.secrets)


def test_keys_of_the_control_topics_clients_are_the_last_resort() -> None:
    keys = {"iceberg.kafka.bootstrap.servers": "c:9092", "iceberg.kafka.security.protocol": "SSL"}
    draft = drafted(keys)
    assert draft.settings.get("kafka", "bootstrap_servers") == ["c:9092"]
    assert security(draft) == {"protocol": "SSL"}


def test_a_text_from_a_provider_becomes_two_references() -> None:
    keys = override(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config="${file:/etc/kafka.properties:jaas}",
    )
    draft = drafted(keys)
    assert security(draft)["user"] == "${env:KAFKA_USER}"
    assert [one.was for one in draft.settings.secrets] == [
        "user within the text of key jaas of the file /etc/kafka.properties",
        "password within the text of key jaas of the file /etc/kafka.properties",
    ]


def test_a_password_from_the_environment_stays_a_reference() -> None:
    jaas = f'{PLAIN} required username="u" password="${{env:MY_PW}}";'
    draft = drafted(override(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=jaas))
    assert security(draft)["password"] == "${env:MY_PW}"
    assert draft.settings.secrets[0].was == "environment variable MY_PW"


def test_oauth() -> None:
    jaas = 'o.OAuthBearerLoginModule required clientId="id" clientSecret="hunter2" scope="s";'
    keys = override(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=jaas,
        sasl_oauthbearer_token_endpoint_url="https://idp.example/token",
    )
    assert security(drafted(keys))["oauth"] == {
        "token_url": "https://idp.example/token",
        "client_id": "id",
        "client_secret": "${env:KAFKA_CLIENT_SECRET}",
        "scope": "s",
    }


def test_kerberos() -> None:
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="p@R.EXAMPLE";'
    keys = override(security_protocol="SASL_PLAINTEXT", sasl_jaas_config=jaas, sasl_kerberos_service_name="kafka")
    assert security(drafted(keys)) == {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "GSSAPI",
        "kerberos": {"principal": "p@R.EXAMPLE", "keytab": "/k", "service_name": "kafka"},
    }


def test_a_mechanism_that_frazil_lacks_is_impossible_with_a_way_out() -> None:
    jaas = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    keys = override(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM", sasl_jaas_config=jaas)
    draft = drafted(keys)
    security(draft)
    assert any(question.blocks and "SCRAM-SHA-512" in question.text for question in draft.questions)


def test_stores_of_java_become_pem_files_with_the_command() -> None:
    keys = override(
        security_protocol="SSL",
        ssl_truststore_location="/tls/trust.jks",
        ssl_truststore_password="hunter2",
        ssl_keystore_location="/tls/client.p12",
        ssl_keystore_type="PKCS12",
        ssl_keystore_password="hunter3",
        ssl_key_password="hunter4",
        ssl_endpoint_identification_algorithm="",
    )
    draft = drafted(keys)
    assert security(draft) == {
        "protocol": "SSL",
        "ca": "/tls/trust.pem",
        "certificate": "/tls/client.pem",
        "key_password": "${env:KAFKA_KEY_PASSWORD}",
        "verify_hostname": False,
    }
    texts = [question.text for question in draft.questions]
    assert (
        "make /tls/trust.pem: keytool -importkeystore -srckeystore /tls/trust.jks -destkeystore /tls/trust.p12 "
        "-deststoretype PKCS12 && openssl pkcs12 -in /tls/trust.p12 -cacerts -nokeys -out /tls/trust.pem" in texts
    )
    assert "make /tls/client.pem: openssl pkcs12 -in /tls/client.p12 -out /tls/client.pem" in texts
    assert "hunter" not in json.dumps(texts) + repr(draft.settings.secrets) + repr(draft.settings.document)
    assert [key for key in draft.keys.unanswered() if "ssl" in key] == []


def test_a_pem_file_stays_as_it_is() -> None:
    keys = override(security_protocol="SSL", ssl_truststore_type="PEM", ssl_truststore_location="/tls/ca.pem")
    assert security(drafted(keys)) == {"protocol": "SSL", "ca": "/tls/ca.pem"}


STRIMZI = {"metadata.name": "k", "spec.bootstrapServers": "b:9093"}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"spec.tls.trustedCertificates": '{"secretName": "ca", "pattern": "*.crt"}'}, {"protocol": "SSL"}),
        (
            {
                "spec.authentication.type": "plain",
                "spec.authentication.username": "u",
                "spec.authentication.passwordSecret": '{"secretName": "s", "password": "p"}',
            },
            {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "user": "u", "password": "${env:KAFKA_PASSWORD}"},
        ),
        (
            {
                "spec.tls.trustedCertificates": '{"secretName": "ca"}',
                "spec.authentication.type": "tls",
                "spec.authentication.certificateAndKey": '{"secretName": "u", "certificate": "a.crt", "key": "a.key"}',
            },
            {
                "protocol": "SSL",
                "certificate": "/etc/frazil/secrets/u/a.crt",
                "key": "/etc/frazil/secrets/u/a.key",
            },
        ),
        (
            {
                "spec.tls.trustedCertificates": '{"secretName": "ca"}',
                "spec.authentication.type": "oauth",
                "spec.authentication.tokenEndpointUri": "https://idp/token",
                "spec.authentication.clientId": "c",
                "spec.authentication.clientSecret": '{"secretName": "s", "key": "k"}',
            },
            {
                "protocol": "SASL_SSL",
                "mechanism": "OAUTHBEARER",
                "oauth": {
                    "token_url": "https://idp/token",
                    "client_id": "c",
                    "client_secret": "${env:KAFKA_CLIENT_SECRET}",
                },
            },
        ),
    ],
)
def test_authentication_of_strimzi(keys: dict[str, str], expected: dict[str, Any] | None) -> None:
    draft = drafted({}, STRIMZI | keys)
    if expected is None:
        assert draft.settings.get("kafka", "security") is None
        return
    found = security(draft)
    assert found == (expected | ({"ca": found["ca"]} if "ca" in found else {}))
    assert ("ca" in found) == ("spec.tls.trustedCertificates" in keys)
