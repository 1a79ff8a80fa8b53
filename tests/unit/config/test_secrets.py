from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.chosen_store import documents_of, own_store
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.documents.secrets import (
    Secret,
    WrittenSecret,
    hidden_in,
    literal_secret_problem,
    looks_secret,
    secret_parameters,
    text_or_secret,
    written_variables,
)
from jobs.config.documents.validation import SpecError
from jobs.config.redaction import redacted
from jobs.config.services.trigger import Restart
from jobs.config.settings.generation import group_generation
from jobs.config.settings.settings import Settings, load_settings, secret_references
from jobs.streaming.supervision.keeper.keeper_start import keeper_command, keeper_policy
from orchestration.cli.main import main


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


URI = "postgresql+psycopg://me@127.0.0.1:1/lake?sslmode=require&sslpassword=hunter2"
STORE = "postgresql://me@127.0.0.1:1/ops?sslcert=/c.pem&sslpassword=hunter%2F2&sslmode=require"
FILE = f"""\
kafka: {{bootstrap_servers: '127.0.0.1:1'}}
catalog:
  name: lake
  properties: {{type: sql, uri: '{URI}', warehouse: 's3://lake/w'}}
state:
  store: '{STORE}/'
  properties: {{table: a.b}}
"""


def loaded(home: Path, text: str = FILE) -> Settings:
    (home / "frazil.yaml").write_text(text)
    return load_settings(None, home=home)


def test_what_an_earlier_release_let_stand_is_used_as_it_was(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    store = settings.state_store
    assert store is not None
    assert store.store == "postgresql://me@127.0.0.1:1/ops?sslcert=/c.pem&sslmode=require"
    assert store.revealed() == {"table": "a.b", "sslpassword": "hunter/2"}
    assert settings.catalog.revealed()["uri"] == URI
    assert own_store(store, "own", tmp_path).revealed() == {"table": "a.own", "sslpassword": "hunter/2"}
    only = loaded(tmp_path, "state: {store: 'postgresql://db/ops?sslpassword=x'}\n").state_store
    assert only is not None and only.store == "postgresql://db/ops"


def test_a_deployment_of_an_earlier_release_keeps_its_generation(tmp_path: Path) -> None:
    """And another secret in the file is another configuration: a driver reads the file when it starts."""
    file = FILE.replace("127.0.0.1:1'}", "db:9092'}").replace("@127.0.0.1:1/lake", "@db/lake")
    file = file.replace("@127.0.0.1:1/ops", "@db:5432/ops")
    assert group_generation(loaded(tmp_path, file), "1") == "85198437887d"
    others = [file.replace("hunter2", "hunter3"), file.replace("hunter%2F2", "hunter3")]
    assert len({group_generation(loaded(tmp_path, each), "1") for each in (file, *others)}) == 3


def test_no_form_shows_it(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    store = settings.state_store
    assert store is not None
    assert store.revealed()["sslpassword"] == "hunter/2"
    forms = [
        repr(settings), str(settings), repr(settings.model_dump()), settings.model_dump_json(),
        repr(pickle.dumps(settings)), repr(vars(settings)), repr(list(secret_references(settings))),
        repr(settings.model_copy(deep=True)), repr(documents_of(store).__dict__), documents_of(store).place("x"),
    ]  # fmt: skip
    assert not [form for form in forms if "hunter" in form]
    copy = settings.model_copy(deep=True)
    assert copy.catalog.revealed()["uri"] == URI


def test_another_process_gets_it_beside_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(tmp_path)
    for name, value in written_variables(secret_references(settings)).items():
        monkeypatch.setenv(name, value)
    there = Settings.model_validate_json(settings.model_dump_json())
    assert there.state_store is not None
    assert there.state_store.revealed()["sslpassword"] == "hunter/2"
    assert there.catalog.revealed()["uri"] == URI
    command = keeper_command(StreamFolder.at(tmp_path), "s", 1, 1, (), keeper_policy(Restart()), settings)
    assert "hunter" not in " ".join(command), "everybody may read the command of a process"


def test_a_connection_that_fails_does_not_tell_it(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    store = settings.state_store
    assert store is not None
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1/ops, table a\.b") as refused:
        documents_of(store).read("a key")
    assert "hunter" not in f"{refused.value!r}"
    with pytest.raises(FrazilError, match="lake") as failed, connect_catalog(settings) as catalog:
        catalog.list_namespaces()
    assert "hunter" not in f"{failed.value!r} {failed.value.message} {failed.value.fix}"
    said = redacted(settings, f"cannot open {URI} with hunter/2, hunter%2F2 or hunter2")
    assert "hunter" not in said and "FRAZIL_STATE_STORE_1" in said


def test_validate_names_it_and_what_to_write(tmp_path: Path) -> None:
    loaded(tmp_path)
    (tmp_path / "streams").mkdir()
    shown = [CliRunner().invoke(main, ["--home", str(tmp_path), "validate", *each]).output for each in ([], ["--json"])]
    assert not [each for each in shown if "hunter" in each]
    assert "state.store has sslpassword in it, visible to every reader of the settings file" in shown[0]
    assert "write sslpassword: ${env:NAME} under state.properties instead" in shown[0]
    assert "catalog.properties.uri has sslpassword in it" in shown[0]
    assert "write sslpassword=${env:NAME} instead" in shown[0]
    findings = [each for each in json.loads(shown[1])["findings"] if "sslpassword" in each["sentence"]]
    assert [each["verdict"] for each in findings] == ["unchecked", "unchecked"], "it is no error, as it never was"


@pytest.mark.parametrize(
    "text",
    [
        "state: {store: 'postgresql://db/ops?password=hunter'}",
        "state: {store: 'postgresql://db/ops?oauth_client_secret=hunter'}",
        "state: {store: 'postgresql://db/ops', properties: {sslpassword: hunter}}",
        "state: {store: 'postgresql://db/ops?sslpassword=hunter', properties: {sslpassword: '${env:A}'}}",
        "state: {store: 'postgresql://db/ops?sslpassword=${env:hunter}'}",
        "state: {store: 's3://lake/state?sslpassword=hunter'}",
        "sources: {shop: {url: 'postgresql://u@db/shop?sslpassword=hunter'}}",
        "sources: {shop: {url: 'postgresql://u@db/shop?scram_client_key=hunter'}}",
        "sources: {shop: {url: 'postgresql://u@db/shop?%73slpassword=hunter'}}",
        "sources: {shop: {url: 'postgresql://u@db/shop', properties: {sslpassword: hunter}}}",
        "catalog: {properties: {type: sql, uri: 'postgresql+psycopg://u@db/lake?password=hunter'}}",
    ],
)
def test_what_was_never_to_stand_in_the_file_is_refused_without_being_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError) as refused:
        loaded(tmp_path, f"{text}\n")
    assert "hunter" not in f"{refused.value!r} {refused.value}"


def test_a_password_of_the_client_s_key_is_a_property_as_libpq_names_it(tmp_path: Path) -> None:
    properties = "properties: {sslpassword: '${env:KEY_PASSWORD}'}"
    text = f"state: {{store: 'postgresql://db/ops', {properties}}}\n"
    settings = loaded(tmp_path, f"{text}sources: {{shop: {{url: 'postgresql://u@db/shop', {properties}}}}}\n")
    assert [secret.names for secret in secret_references(settings)] == [("KEY_PASSWORD",), ("KEY_PASSWORD",)]


def test_references_stay_what_they_are_beside_a_written_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASS", "of me")
    url = "postgresql+psycopg://me:${env:PGPASS}@db/lake?sslpassword=$%7Bx&a=b"
    hidden = hidden_in(url, "catalog.properties.uri", None)
    assert isinstance(hidden, WrittenSecret)
    assert hidden.reveal() == url.replace("${env:PGPASS}", "of me")
    assert pickle.loads(pickle.dumps(hidden)) == Secret(hidden.template)
    for nothing in (url.replace("$%7Bx", "${env:KEY}"), "postgresql://db/lake?sslmode=require", "sqlite:///a?b=c"):
        assert hidden_in(nothing, "catalog.properties.uri", None) is None


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sslmode=require&sslkey=/k.pem&passfile=/p", []),
        ("sslpassword=x", ["sslpassword"]),
        ("a=b&SSLPassword=x&api_key=y", ["SSLPassword", "api_key"]),
        ("sslpassword=", []),
        ("scram_client_key=x&scram_server_key=y", ["scram_client_key", "scram_server_key"]),
    ],
)
def test_which_parameters_are_secrets(query: str, found: list[str]) -> None:
    assert secret_parameters(f"postgresql://u@db/shop?{query}") == found
