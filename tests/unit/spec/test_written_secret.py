"""Secrets in URLs: refused where they always were, used and shown nowhere where an earlier release let them stand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.catalog import connect_catalog
from jobs.errors import FrazilError
from jobs.redaction import redacted
from jobs.spec.generation import group_generation
from jobs.spec.secrets import Secret
from jobs.spec.settings import Settings, load_settings, secret_references
from jobs.spec.trigger import Restart
from jobs.spec.validation import SpecError
from jobs.spec.written_secret import WrittenSecret, hidden_in, secret_parameters, written_variables
from jobs.state.chosen_store import documents_of
from jobs.state.own_store import own_store
from jobs.state.stream_folder import StreamFolder
from jobs.supervise.keeper_start import keeper_command, keeper_policy
from orchestration.cli.main import main

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
    assert "state.store has sslpassword in it, which whoever may read the file of the settings sees" in shown[0]
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
