"""`frazil register`: what it shows, asks and refuses."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

from jobs.clients.catalog.catalog import connect_catalog
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return deployment_in(tmp_path / "deployment", "payments")


@pytest.fixture
def metadata(tmp_path: Path) -> str:
    """The newest metadata file of a table of another catalog."""
    folder = tmp_path / "former"
    folder.mkdir()
    with closing(SqlCatalog("former", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())) as catalog:
        catalog.create_namespace("pay")
        table = catalog.create_table("pay.ments", ROWS.schema)
        table.append(ROWS)
        return catalog.load_table("pay.ments").metadata_location


def frazil(home: Path, *words: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), "register", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_look_changes_nothing_and_a_registration_is_shown(home: Path, metadata: str) -> None:
    look = frazil(home, "lake.payments", metadata, "--dry-run")
    assert look.exit_code == 0, look.output
    assert "3 rows, 1 snapshots, format 2" in look.output
    assert "would be registered. Nothing was changed." in look.output
    assert not (home / ".frazil" / "catalog.db").exists()
    done = frazil(home, "lake.payments", metadata, "--yes")
    assert done.exit_code == 0, done.output
    assert "it is registered." in done.output
    catalog = connect_catalog(Deployment.at(home).settings())
    assert catalog.load_table("lake.payments").scan().to_arrow().num_rows == 3
    again = json.loads(frazil(home, "lake.payments", metadata, "--yes", "--json").stdout)
    assert (again["registered"], again["rows"], again["metadata_location"]) == (True, 3, metadata)
    assert "was registered already" in frazil(home, "lake.payments", metadata, "--yes").output


def test_a_path_of_this_machine_needs_no_scheme(home: Path, metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(metadata.removeprefix("file://"))
    monkeypatch.chdir(path.parent)
    facts = json.loads(frazil(home, "lake.payments", path.name, "--dry-run", "--json").stdout)
    assert (facts["registered"], facts["metadata_location"]) == (False, metadata)


def test_without_a_terminal_it_needs_consent(home: Path, metadata: str) -> None:
    refused = frazil(home, "lake.payments", metadata)
    assert refused.exit_code == 2
    assert "--yes" in refused.output
    assert not (home / ".frazil" / "catalog.db").exists()


def test_what_is_refused(home: Path, metadata: str, tmp_path: Path) -> None:
    assert "is no name of a table" in frazil(home, "payments", metadata, "--yes").output
    gone = frazil(home, "lake.payments", str(tmp_path / "nothing"), "--yes")
    assert gone.exit_code == 1
    assert "is no table of a Hadoop-style warehouse" in gone.output
    catalog = connect_catalog(Deployment.at(home).prepared_settings())
    catalog.create_namespace("lake")
    catalog.create_table("lake.payments", ROWS.schema)
    for consent in ("--yes", "--dry-run"):
        taken = frazil(home, "lake.payments", metadata, consent)
        assert taken.exit_code == 1
        assert "lake.payments is another table" in taken.output
