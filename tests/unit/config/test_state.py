"""The state block of the settings: a folder, or a store with its properties; what is wrong is said by its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings, load_settings, secret_references
from jobs.streaming.driver.watch.watches import secret_files
from tests.helpers.spec_files import settings_of
from tests.unit.config.test_mirror import spec


def test_a_path_alone_is_the_folder_and_nothing_is_shared(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "state: lib/state\n")
    assert settings.state == tmp_path / "lib" / "state" and settings.state_store is None
    settings = settings_of(tmp_path, "state: {folder: lib/other}\n")
    assert settings.state == tmp_path / "lib" / "other" and settings.state_store is None
    assert settings_of(tmp_path, "lease_ttl: 30s\n").state == tmp_path / ".frazil" / "state"


def test_a_store_has_a_folder_of_the_machine_beside_it_and_its_secrets_are_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_SECRET", "not-to-be-shown")
    settings = settings_of(
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
    settings = settings_of(
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
        ("state: {store: 'postgresql://me:word@db/ops'}", "a password must not be in the file"),
        ("state: {store: 'postgresql://db/ops?password=word'}", "must not be in the file"),
        ("state: {store: 'postgresql://me:${env:A}@db/ops'}", "is not a secret; write the password as"),
        ("state: {properties: {table: a}}", "is for a store; write store:"),
        ("state: {store: 's3://lake/state', properties: {s3.endpont: x}}", "did you mean 's3.endpoint'"),
        ("state: {store: 's3://lake/state', properties: {s3.secret-access-key: word}}", "a secret must not be"),
        ("state: {store: 's3://lake/state', properties: {s3.access-key-id: me}}", "belong together"),
        ("state: {store: 'postgresql://db/ops', properties: {table: 'a;b'}}", "must be a name in lower case"),
        ("state: {store: 's3://lake/state', timeout: 1m}", "must be between 500ms and 30s"),
        ("state: {stor: 's3://lake/state'}", "did you mean 'store'"),
    ],
)
def test_what_is_wrong_is_said_by_its_place_without_values(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        settings_of(tmp_path, f"{text}\n")
    assert message in str(refused.value) and "frazil.yaml:1" in str(refused.value)
    assert "word" not in str(refused.value).replace("password", "")


URL = "postgresql://reader@db:5432/shop"


def settings(home: Path, **source: Any) -> Settings:
    (home / "frazil.yaml").write_text(yaml.safe_dump({"sources": {"shop": {"url": URL, **source}}}))
    return load_settings(None, home=home)


def test_a_source_has_its_password_by_reference(tmp_path: Path) -> None:
    properties = {"password": "${file:/run/secrets/shop}", "sslmode": "require"}
    found = settings(tmp_path, properties=properties, statement_timeout="1h")
    assert [secret.template for secret in secret_references(found)] == ["${file:/run/secrets/shop}"]
    # A driver never reads it, so it does not end as it changes.
    assert secret_files(spec(tmp_path), found) == ()
    assert generation(spec(tmp_path), found) == generation(spec(tmp_path), Settings.embedded(tmp_path))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"url": "mysql://u@db/shop"}, "mirrors of other databases are not compared"),
        ({"url": "postgresql://u:secret@db/shop"}, "password"),
        ({"url": "postgresql://db/shop"}, "must name a user, a host and a database"),
        ({"properties": {"passwort": "x"}}, "did you mean 'password'"),
        ({"properties": {"password": "x"}}, "must not be in the file"),
        ({"timeout": "1h"}, "between 1s and 5m"),
        ({"statement_timeout": "2d"}, "between 1s and 1d"),
        ({"url": "postgresql://u@db/shop?sslpassword=hidden"}, "password"),
        ({"url": "postgresql://u@db/shop?sslmode=require&password=hidden"}, "password"),
    ],
)
def test_what_is_no_source(tmp_path: Path, source: dict[str, Any], said: str) -> None:
    with pytest.raises(FrazilError, match=said) as raised:
        settings(tmp_path, **source)
    assert "secret@" not in str(raised.value) and "hidden" not in str(raised.value)


def test_what_a_mirror_is_compared_with_starts_no_driver_anew(tmp_path: Path) -> None:
    found = Settings.embedded(tmp_path)
    bare = spec(tmp_path, mirrors=[{"table": "shop.customers"}])
    named = {"table": "shop.customers", "source": {"connection": "shop", "table": "public.customers"}}
    compared = spec(tmp_path, mirrors=[named])
    assert (bare.config_hash, generation(bare, found)) == (compared.config_hash, generation(compared, found))


@pytest.mark.parametrize(
    ("mirror", "said"),
    [
        ({"source": {"connection": "shop", "table": "customers"}}, "must be a table with its schema"),
        ({"source": {"table": "public.customers"}}, "connection"),
        ({"where": "id > 1", "source": {"connection": "shop"}}, "needs where, the mirror's condition"),
    ],
)
def test_what_is_no_source_of_a_mirror(tmp_path: Path, mirror: dict[str, Any], said: str) -> None:
    with pytest.raises(FrazilError, match=said):
        spec(tmp_path, mirrors=[{"table": "shop.customers", **mirror}])
