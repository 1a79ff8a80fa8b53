"""The state block of the settings: a folder, or a store with its properties; what is wrong is said by its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.spec.settings import Settings, load_settings, secret_references
from jobs.spec.validation import SpecError


def load(home: Path, text: str) -> Settings:
    (home / "frazil.yaml").write_text(text)
    return load_settings(None, home=home)


def test_a_path_alone_is_the_folder_and_nothing_is_shared(tmp_path: Path) -> None:
    settings = load(tmp_path, "state: lib/state\n")
    assert settings.state == tmp_path / "lib" / "state" and settings.state_store is None
    settings = load(tmp_path, "state: {folder: lib/other}\n")
    assert settings.state == tmp_path / "lib" / "other" and settings.state_store is None
    assert load(tmp_path, "lease_ttl: 30s\n").state == tmp_path / ".frazil" / "state"


def test_a_store_has_a_folder_of_the_machine_beside_it_and_its_secrets_are_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_SECRET", "not-to-be-shown")
    settings = load(
        tmp_path,
        "state:\n  store: s3://lake-state/frazil/\n  properties:\n    s3.access-key-id: me\n"
        "    s3.secret-access-key: ${env:STATE_SECRET}\n",
    )
    store = settings.state_store
    assert store is not None and (store.store, store.kind) == ("s3://lake-state/frazil", "s3")
    assert settings.state == tmp_path / ".frazil" / "state"
    assert store.revealed()["s3.secret-access-key"] == "not-to-be-shown"
    assert "not-to-be-shown" not in f"{settings!r} {settings.model_dump_json()}"
    assert [secret.names for secret in secret_references(settings)] == [("STATE_SECRET",)]
    settings = load(
        tmp_path,
        'state: {store: "postgresql://me@db:5432/ops", properties: {password: "${env:STATE_SECRET}", table: a.b}}\n',
    )
    assert settings.state_store is not None and settings.state_store.kind == "postgresql"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state: s3://lake/state", "must be a path of this machine, not a URI"),
        ("state: {store: gs://lake/state}", "must begin with s3:// or postgresql://"),
        ("state: {store: 's3:///state'}", "must be a bucket and a folder in it"),
        ("state: {store: 'postgresql://db'}", "must name a host and a database"),
        ("state: {store: 'postgresql://me:word@db/ops'}", "a password must not stand in the file"),
        ("state: {store: 'postgresql://db/ops?password=word'}", "must not stand in the file"),
        ("state: {store: 'postgresql://me:${env:A}@db/ops'}", "is not a secret; write the password as"),
        ("state: {properties: {table: a}}", "is for a store; write store:"),
        ("state: {store: 's3://lake/state', properties: {s3.endpont: x}}", "did you mean 's3.endpoint'"),
        ("state: {store: 's3://lake/state', properties: {s3.secret-access-key: word}}", "a secret must not stand"),
        ("state: {store: 's3://lake/state', properties: {s3.access-key-id: me}}", "belong together"),
        ("state: {store: 'postgresql://db/ops', properties: {table: 'a;b'}}", "must be a name in lower case"),
        ("state: {store: 's3://lake/state', timeout: 1m}", "must be between 500ms and 30s"),
        ("state: {stor: 's3://lake/state'}", "did you mean 'store'"),
    ],
)
def test_what_is_wrong_is_said_by_its_place_without_values(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(tmp_path, f"{text}\n")
    assert message in str(refused.value) and "frazil.yaml:1" in str(refused.value)
    assert "word" not in str(refused.value).replace("password", "")
