"""`sources:` in the settings, and `source:` of a mirror: what is refused, and that no driver starts anew for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.settings import Settings, load_settings, secret_references
from jobs.stream.watches import secret_files
from tests.unit.spec.test_mirror import spec

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
        ({"properties": {"password": "x"}}, "must not stand in the file"),
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
