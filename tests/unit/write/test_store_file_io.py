"""FileIO and the authorities of a store: those of the settings, for each client that is made."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io

from jobs.catalog import client_properties
from jobs.errors import FrazilError
from jobs.spec.catalog import CatalogSettings
from jobs.write.file_access import store_properties
from jobs.write.renewed_file_io import StoreFileIO

STORE = {"s3.endpoint": "https://127.0.0.1:1", "s3.region": "eu", "s3.connect-timeout": "3"}


def given(**more: str) -> CatalogSettings:
    properties = {"type": "sql", "uri": "sqlite:///x.db", "warehouse": "s3://lake/w"}
    return CatalogSettings.model_validate({"properties": properties | STORE | more})


def test_a_task_trusts_whom_the_settings_name(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("-----BEGIN CERTIFICATE-----")
    of_client = client_properties(given(**{"s3.ssl.cabundle": str(authorities)}))
    io = load_file_io(pickle.loads(pickle.dumps(store_properties(of_client))), "s3://lake/w/t")
    assert type(io) is StoreFileIO
    made = io.fs_by_scheme("s3", "lake").__reduce__()[1][0]
    assert made["tls_ca_file_path"] == str(authorities)
    # Nothing else is lost on the way.
    assert (made["endpoint_override"], made["region"], made["connect_timeout"]) == (STORE["s3.endpoint"], "eu", 3.0)
    authorities.unlink()
    again = load_file_io(store_properties(of_client), "s3://lake/w/t")
    with pytest.raises(FrazilError, match=rf"s3\.ssl\.cabundle: {authorities} is no file"):
        again.new_input("s3://lake/w/t/a")


def test_without_authorities_of_its_own_the_client_is_pyicebergs() -> None:
    assert "py-io-impl" not in client_properties(given())
    made = StoreFileIO(STORE).fs_by_scheme("s3", "lake").__reduce__()[1][0]
    assert made["tls_ca_file_path"] == ""


def test_another_file_io_would_not_read_them() -> None:
    with pytest.raises(ValueError, match=r"s3\.ssl\.cabundle.*leave out py-io-impl"):
        given(**{"s3.ssl.cabundle": "/ca.pem", "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
