from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.base.errors import FrazilError
from jobs.config.services.security import (
    KafkaSecurity,
    jaas_quoted,
    java_options,
    librdkafka_options,
)

SASL = {"mechanism": "SCRAM-SHA-512", "user": "alice", "password": "${env:FRAZIL_T_PW}"}
OAUTH = {
    "token_url": "https://idp.example/token",
    "client_id": "frazil",
    "client_secret": "${env:FRAZIL_T_PW}",
    "scope": "kafka more",
    "logical_cluster": "lkc-1",
    "identity_pool_id": "pool-2",
    "ca": "/c/idp.pem",
}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def security(**fields: Any) -> KafkaSecurity:
    return KafkaSecurity.model_validate(fields)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_PW", 'pa"ss\\w')
    monkeypatch.setenv("FRAZIL_T_KEYPW", "opensesame")
    monkeypatch.setenv("FRAZIL_T_USER", "APIKEY")


@pytest.mark.parametrize(
    ("fields", "librdkafka", "java"),
    [
        ({"protocol": "PLAINTEXT"}, {"security.protocol": "PLAINTEXT"}, {"security.protocol": "PLAINTEXT"}),
        (
            {"protocol": "SASL_PLAINTEXT", **SASL},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": 'pa"ss\\w',
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": SCRAM_MODULE + ' required username="alice" password="pa\\"ss\\\\w";',
            },
        ),
        (
            {"protocol": "SASL_SSL", **SASL, "mechanism": "PLAIN", "user": "${env:FRAZIL_T_USER}", "ca": "/c/ca.pem"},
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "APIKEY",
                "sasl.password": 'pa"ss\\w',
                "ssl.endpoint.identification.algorithm": "https",
                "ssl.ca.location": "/c/ca.pem",
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN_MODULE + ' required username="APIKEY" password="pa\\"ss\\\\w";',
                "ssl.endpoint.identification.algorithm": "https",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "/c/ca.pem",
            },
        ),
        (
            {
                "protocol": "SSL",
                "ca": "/c/ca.pem",
                "certificate": "/c/both.pem",
                "key_password": "${env:FRAZIL_T_KEYPW}",
                "verify_hostname": False,
            },
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "none",
                "ssl.ca.location": "/c/ca.pem",
                "ssl.certificate.location": "/c/both.pem",
                "ssl.key.location": "/c/both.pem",
                "ssl.key.password": "opensesame",
            },
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "/c/ca.pem",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "/c/both.pem",
                "ssl.key.password": "opensesame",
            },
        ),
        (
            {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "oauth": OAUTH},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
                "sasl.oauthbearer.client.id": "frazil",
                "sasl.oauthbearer.client.secret": 'pa"ss\\w',
                "sasl.oauthbearer.scope": "kafka more",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
                "https.ca.location": "/c/idp.pem",
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="frazil" clientSecret="pa\\"ss\\\\w" scope="kafka more" extension_logicalCluster="lkc-1" '
                'extension_identityPoolId="pool-2" ssl.truststore.type="PEM" ssl.truststore.location="/c/idp.pem";',
                "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
                "OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
            },
        ),
        (
            {
                "protocol": "SASL_PLAINTEXT",
                "mechanism": "GSSAPI",
                "kerberos": {"principal": "frazil/h@EXAMPLE.COM", "keytab": "/k"},
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.principal": "frazil/h@EXAMPLE.COM",
                "sasl.kerberos.keytab": "/k",
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" '
                'storeKey="true" keyTab="/k" principal="frazil/h@EXAMPLE.COM";',
            },
        ),
    ],
    ids=["plaintext", "sasl_plaintext", "sasl_ssl", "mutual tls", "tokens", "kerberos"],
)
def test_translation(fields: dict[str, Any], librdkafka: dict[str, str], java: dict[str, str]) -> None:
    assert librdkafka_options(security(**fields)) == librdkafka
    assert java_options(security(**fields)) == java


def test_what_is_not_used_is_not_dumped() -> None:
    """Or every driver of a deployment that has none of it would be started anew by an upgrade."""
    assert not {"oauth", "kerberos"} & security(protocol="SASL_SSL", **SASL).model_dump().keys()
    dumped = security(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=OAUTH).model_dump(mode="json")
    assert dumped["oauth"]["client_secret"] == "${env:FRAZIL_T_PW}"
    assert security(**dumped).model_dump(mode="json") == dumped


def test_secrets_of_tokens_are_known_as_such() -> None:
    found = security(protocol="SASL_SSL", mechanism="OAUTHBEARER", oauth=OAUTH | {"client_id": "${env:FRAZIL_T_USER}"})
    assert [str(each) for each in found.secrets] == ["${env:FRAZIL_T_USER}", "${env:FRAZIL_T_PW}"]


def test_no_security_is_no_options() -> None:
    assert librdkafka_options(None) == {}
    assert java_options(None) == {}


def test_a_certificate_and_key_in_two_files_go_to_java_as_text(tmp_path: Path) -> None:
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    certificate.write_text("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
    key.write_text("-----BEGIN PRIVATE KEY-----\nBB==\n-----END PRIVATE KEY-----\n")
    block = security(protocol="SSL", certificate=str(certificate), key=str(key))
    options = java_options(block)
    assert options["ssl.keystore.certificate.chain"] == certificate.read_text()
    assert options["ssl.keystore.key"] == key.read_text()
    assert "ssl.keystore.location" not in options
    assert librdkafka_options(block)["ssl.key.location"] == str(key)


def test_keys_that_java_cannot_read_are_told_with_the_command(tmp_path: Path) -> None:
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    with pytest.raises(FrazilError, match="old PEM form") as told:
        java_options(security(protocol="SSL", certificate=str(certificate), key=str(key)))
    assert told.value.fix is not None
    assert told.value.fix.startswith("openssl pkcs8 -topk8")


def test_a_missing_certificate_file_is_told(tmp_path: Path) -> None:
    block = security(protocol="SSL", certificate=str(tmp_path / "no.crt"), key=str(tmp_path / "no.key"))
    with pytest.raises(FrazilError, match=r"kafka.security.certificate: cannot read .*no.crt: No such file"):
        java_options(block)


@pytest.mark.parametrize("translate", [librdkafka_options, java_options])
def test_a_variable_that_is_not_set_is_named(translate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRAZIL_T_PW")
    with pytest.raises(FrazilError, match="FRAZIL_T_PW is not set"):
        translate(security(protocol="SASL_SSL", **SASL))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"protocol": "SASL_SSL"},
            ["mechanism: is required for the protocol SASL_SSL", "user: is req", "password: is req"],
        ),
        ({"protocol": "SASL_SSL", **SASL, "user": ""}, ["user: is required"]),
        ({"protocol": "SSL", **SASL}, ["user: is not used by the protocol SSL; did you mean SASL_SSL?"]),
        ({"protocol": "PLAINTEXT", "ca": "/c"}, ["ca: is not used by the protocol PLAINTEXT, which does not encrypt"]),
        ({"protocol": "SASL_PLAINTEXT", **SASL, "ca": "/c"}, ["ca: is not used"]),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, ["oauth: is required for the mechanism OAUTHBEARER"]),
        ({"protocol": "SASL_SSL", "mechanism": "GSSAPI"}, ["kerberos: is required for the mechanism GSSAPI"]),
        (
            {"protocol": "SASL_SSL", **SASL, "mechanism": "OAUTHBEARER", "oauth": OAUTH},
            ["user: is not used by the mechanism OAUTHBEARER", "password: is not used"],
        ),
        ({"protocol": "SASL_SSL", **SASL, "oauth": OAUTH}, ["oauth: is for the mechanism OAUTHBEARER"]),
        ({"protocol": "SSL", "oauth": OAUTH}, ["oauth: is not used by the protocol SSL; did you mean SASL_SSL?"]),
        (
            {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": OAUTH | {"token_url": "idp.example/token"}},
            ["must be a URL such as https://idp.example/oauth2/token"],
        ),
        (
            {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": OAUTH | {"token_url": "https://a:b@idp/t"}},
            ["must have no user, no password"],
        ),
        (
            {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": OAUTH | {"token_url": "https://idp/t?s=b"}},
            ["no ? and no #"],
        ),
        (
            {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": OAUTH | {"logical_cluster": "a,b=c"}},
            ["must be of letters, digits"],
        ),
        (
            {"protocol": "SASL_SSL", "mechanism": "GSSAPI", "kerberos": {"principal": "a; rm -rf /", "keytab": "/k"}},
            ["must be a principal such as frazil/host.example@EXAMPLE.COM"],
        ),
        (
            {"protocol": "SASL_SSL", "mechanism": "GSSAPI", "kerberos": {"principal": "a", "keytab": "/k$(id)"}},
            ["must be a path of letters"],
        ),
        ({"protocol": "SASL_SSL", "mechanism": "aws_msk_iam"}, ["Amazon MSK takes SCRAM-SHA-512"]),
        ({"protocol": "SSL", "key": "/k"}, ["key: needs a certificate beside it"]),
        ({"protocol": "SSL", "key_password": "${env:A}"}, ["key_password: needs a certificate beside it"]),
    ],
)
def test_fields_that_do_not_fit_the_protocol(fields: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        security(**fields)
    for part in told:
        assert part in str(error.value)


@pytest.mark.parametrize("field", ["password", "key_password"])
def test_a_literal_password_is_refused_and_not_repeated(field: str) -> None:
    with pytest.raises(ValidationError) as error:
        security(
            protocol="SASL_SSL",
            mechanism="PLAIN",
            user="alice",
            certificate="/c",
            **{"password": "${env:A}", field: "hunter2"},
        )
    assert "write ${env:NAME}" in str(error.value)
    assert "hunter2" not in str(error.value)


def read_quoted_as_java_does(text: str) -> tuple[str, str]:
    """Reads a quoted word by the rules of java.io.StreamTokenizer.nextToken; returns it and what follows it."""
    assert text[0] == '"'
    escapes = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}
    value, at = "", 1
    while at < len(text) and text[at] not in '"\n\r':
        if text[at] != "\\":
            value += text[at]
            at += 1
            continue
        at += 1
        first = at
        if text[at] in "01234567":
            longest = 3 if text[at] <= "3" else 2
            while at < len(text) and at - first < longest and text[at] in "01234567":
                at += 1
            value += chr(int(text[first:at], 8))
        else:
            value += escapes.get(text[at], text[at])
            at += 1
    assert text[at] == '"', "a raw line break, or the end, came before the closing quote"
    return value, text[at + 1 :]


@given(st.text(), st.text(st.sampled_from('\\"\n\r0179abfnrtv;= ')))
def test_java_reads_back_what_is_quoted(anything: str, hostile: str) -> None:
    for value in (anything, hostile, anything + hostile):
        assert read_quoted_as_java_does(f"{jaas_quoted(value)};") == (value, ";")
