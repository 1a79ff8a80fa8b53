import copy
import pickle
from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.spec.secrets import Secret, literal_secret_problem, looks_secret, text_or_secret


def test_reveals_the_value_at_the_moment_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("postgresql://me:${env:FRAZIL_T_A}@${env:FRAZIL_T_B}/db")
    monkeypatch.setenv("FRAZIL_T_A", "one")
    monkeypatch.setenv("FRAZIL_T_B", "host")
    assert secret.reveal() == "postgresql://me:one@host/db"
    monkeypatch.setenv("FRAZIL_T_A", "two")
    assert secret.reveal() == "postgresql://me:two@host/db"
    assert secret.names == ("FRAZIL_T_A", "FRAZIL_T_B")


def test_reveals_what_a_file_holds_at_the_moment_of_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = tmp_path / "of postgres"
    monkeypatch.setenv("FRAZIL_T_A", "me")
    secret = Secret(f"postgresql://${{env:FRAZIL_T_A}}:${{file:{mounted}}}@host/db")
    for value in ("one", " two${env:FRAZIL_T_A}"):
        mounted.write_text(f"{value}\n")
        assert secret.reveal() == f"postgresql://me:{value}@host/db"
    assert (secret.names, secret.files) == (("FRAZIL_T_A",), (str(mounted),))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\nb\n", "holds more than one line"),
        (b"\xff", "is no text"),
    ],
)
def test_a_file_that_holds_no_secret_is_named_with_its_line(tmp_path: Path, content: bytes | None, told: str) -> None:
    mounted = tmp_path / "secret"
    if content is not None:
        mounted.write_bytes(content)
    with pytest.raises(FrazilError) as refused:
        Secret(f"${{file:{mounted}}}", where="frazil.yaml:7").reveal()
    assert refused.value.message == f"The file {mounted}, which frazil.yaml:7 refers to, {told}."


def test_a_value_that_looks_like_a_reference_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_A", r"${env:HOME}\1\g<0>")
    assert Secret("${env:FRAZIL_T_A}").reveal() == r"${env:HOME}\1\g<0>"


def test_shows_only_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_A", "hunter2")
    secret = Secret("${env:FRAZIL_T_A}")
    secret.reveal()
    for shown in (repr(secret), str(secret), f"{secret}", repr(pickle.dumps(secret)), repr(copy.deepcopy(secret))):
        assert "hunter2" not in shown
        assert "FRAZIL_T_A" in shown


@pytest.mark.parametrize(("value", "state"), [(None, "not set"), ("", "empty")])
def test_a_missing_variable_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, value: str | None, state: str
) -> None:
    monkeypatch.delenv("FRAZIL_T_A", raising=False)
    if value is not None:
        monkeypatch.setenv("FRAZIL_T_A", value)
    with pytest.raises(FrazilError) as told:
        Secret("${env:FRAZIL_T_A}", where="frazil.yaml:7").reveal()
    assert told.value.message == f"The environment variable FRAZIL_T_A, which frazil.yaml:7 refers to, is {state}."
    assert told.value.fix == "read -rs FRAZIL_T_A && export FRAZIL_T_A"


@pytest.mark.parametrize("text", ["hunter2", "", "$HUNTER2", "env:HUNTER2", "{env:HUNTER2}"])
def test_a_literal_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \$\{env:NAME\}") as told:
        Secret(text)
    assert not text or text not in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        "${env:}",
        "${env:1A}",
        "${HOME}",
        "${env:A",
        "${ENV:A}",
        "${env:A}${vault:x}",
        "${env:A b}",
        "${file:}",
        "${file:here}",
    ],
)
def test_a_malformed_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="reference that cannot be read"):
        text_or_secret(text)


@pytest.mark.parametrize(
    "key",
    [
        "password", "token", "credential", "key_password", "s3.secret-access-key", "s3.session-token",
        "adls.account-key", "client.secret-access-key",
        "adls.sas-token", "adls.connection-string", "gcs.oauth2.token", "header.Authorization",
        "spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret", "clientSecret", "PASSWORD", "x-api-key",
    ],
)  # fmt: skip
def test_keys_that_look_secret(key: str) -> None:
    assert looks_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "uri", "warehouse", "type", "s3.access-key-id", "token-refresh-enabled", "oauth2-server-uri", "token-type",
        "gcs.oauth2.token-expires-at", "spark.kubernetes.authenticate.oauthTokenFile", "s3.region", "", "keyboard",
    ],
)  # fmt: skip
def test_keys_that_do_not(key: str) -> None:
    assert not looks_secret(key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token", "hunter2"),
        ("uri", "postgresql+psycopg2://user:hunter2@host/db"),
        ("uri", "postgresql+psycopg2://user:hun/ter2@host/db"),
        ("uri", "postgresql+psycopg2://:hunter2@host/db"),
        ("py-io.proxy", "http://user:hunter2@proxy:3128"),
        ("uri", "postgresql://host/db?user=me&password=hunter2"),
        ("uri", "postgresql://host/db?sslpassword=x&password=hunter2"),
        ("jdbc.url", "jdbc:sqlserver://host;password=hunter2;database=x"),
        ("uri", "https://${env:USER_ID}:hunter2@host/"),
        ("uri", "https://me:hunter2${env:SUFFIX}@host/"),
    ],
)
def test_a_literal_password_is_found(key: str, value: str) -> None:
    problem = literal_secret_problem(key, text_or_secret(value))
    assert problem is not None
    assert "${env:NAME}" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token", "${env:TOKEN}"),
        ("credential", "client:${env:CLIENT_SECRET}"),
        ("token", ""),
        ("uri", "postgresql+psycopg2://user:${env:PGPASS}@host/db"),
        ("uri", "postgresql+psycopg2://user@host:5432/db"),
        ("uri", "https://host:8181/api/catalog"),
        ("uri", "https://[::1]:8181/"),
        ("uri", "http://host:8181/a@b"),
        ("uri", "sqlite:////tmp/x/catalog.db"),
        ("warehouse", "file:///tmp/x/warehouse"),
        ("warehouse", "s3://bucket/path@2"),
        ("s3.endpoint", "http://127.0.0.1:9000/a@b"),
        ("uri", "postgresql://host/db?user=me&password=${env:PGPASS}"),
    ],
)
def test_what_shows_no_secret_passes(key: str, value: str) -> None:
    assert literal_secret_problem(key, text_or_secret(value)) is None
