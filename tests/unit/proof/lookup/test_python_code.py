"""The program that reads rows: it runs as it stands, and has no secret in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from jobs.config.services.catalog import CatalogSettings
from jobs.proof.lookup.python_code import python_code
from tests.helpers.real_stream import SINK, RealStream
from tests.helpers.stream_history import ROW


def loaded_with(code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """The name and the properties with which a program loads its catalog."""
    given: list[tuple[str, dict[str, Any]]] = []

    class Loaded(Exception):
        pass

    def load(name: str, **properties: Any) -> Catalog:
        given.append((name, properties))
        raise Loaded

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", load)
    with pytest.raises(Loaded):
        exec(compile(code, "program", "exec"), {})
    return given[0]


def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW, ROW])
    first = stream.table().current_snapshot()
    assert first is not None
    stream.land([ROW])
    code = python_code(stream.settings.catalog, SINK, f"scan(snapshot_id={first.snapshot_id})")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-"], input=code, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert '["p-0-0","p-0-1"]' in done.stdout.replace('"\n', '"').replace(" ", "").replace("\n", "")


def test_references_are_read_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("of a file\n")
    monkeypatch.setenv("CATALOG_KEY", "of a variable")
    catalog = CatalogSettings(
        name="lake",
        properties={
            "type": "rest",
            "uri": "https://catalog.example",
            "token": "${file:" + str(file) + "}",
            "s3.secret-access-key": "${env:CATALOG_KEY}",
            "warehouse": 'a "quoted" \\ name',
            "ssl.cabundle": "/etc/ca.pem",
            "ssl.client.cert": "/etc/client.pem",
            "ssl.client.key": "/etc/client.key",
        },
    )
    code = python_code(catalog, "a.b", "scan()")
    assert "of a" not in code
    name, properties = loaded_with(code, monkeypatch)
    assert name == "lake"
    tls = {"cabundle": "/etc/ca.pem", "client": {"cert": "/etc/client.pem", "key": "/etc/client.key"}}
    revealed = {key: value for key, value in catalog.revealed().items() if not key.startswith("ssl.")}
    assert properties == revealed | {"ssl": tls}


@pytest.mark.parametrize(
    "uri", ["postgresql+psycopg://me@db:5432/lake", "postgresql+psycopg://${env:CATALOG_USER}@db/lake"]
)
def test_a_password_goes_into_the_uri(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_PASSWORD", "p@ss/w:rd")
    monkeypatch.setenv("CATALOG_USER", "me")
    catalog = CatalogSettings(properties={"type": "sql", "uri": uri, "password": "${env:CATALOG_PASSWORD}"})
    code = python_code(catalog, "a.b", "scan()")
    assert "p@ss" not in code
    assert loaded_with(code, monkeypatch) == ("frazil", catalog.revealed())
