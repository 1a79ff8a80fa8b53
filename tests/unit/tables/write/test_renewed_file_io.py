"""Keys of a table's files: when others are asked for, and a FileIO that goes on with them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import client_properties
from jobs.config.services.catalog import CatalogSettings
from jobs.tables.write import renewed_file_io
from jobs.tables.write.file_access import (
    KeyAge,
    keys_of,
    refused_keys,
    store_properties,
)
from jobs.tables.write.renewed_file_io import RenewedFileIO, StoreFileIO

ENDS = "s3.session-token-expires-at-ms"
WAY = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "us-east-1", "s3.secret-access-key": "hidden"}


def keys(number: int, seconds: float | None) -> dict[str, str]:
    """Those that a catalog hands out as the so-maniest, for so long; None: it does not say."""
    told = {} if seconds is None else {ENDS: str(round((time.time() + seconds) * 1000))}
    return {**WAY, "s3.access-key-id": f"key-{number}", "s3.session-token": f"token-{number}", **told}


def handing_out(*lives: float | None) -> Callable[[], Mapping[str, Any]]:
    handed: Iterator[Mapping[str, Any]] = iter([keys(number, life) for number, life in enumerate(lives, 2)])
    return lambda: next(handed)


@pytest.mark.parametrize(("told", "due", "ended"), [(3600.0, False, False), (None, False, False), (-5.0, True, True)])
def test_keys_are_due_in_the_middle_of_their_life(told: float | None, due: bool, ended: bool) -> None:
    properties = keys(1, told)
    age = KeyAge()
    assert (age.due(properties), age.ended(properties)) == (due, ended)


def test_keys_of_which_nothing_is_told_are_due_after_ten_minutes_or_half_of_what_they_have_lasted() -> None:
    age, properties = KeyAge(), keys(1, None)
    assert not age.due(properties)
    age._taken -= 601
    assert age.due(properties)
    age.renewed()
    age._taken -= 60
    assert not age.due(properties)
    age.refused()
    age.renewed()
    assert age.after_seconds == pytest.approx(30, abs=1)
    age._taken -= 31
    assert age.due(properties)
    # Keys that are refused at once are no reason to ask without end.
    age.renewed()
    age.refused()
    assert age.after_seconds == 1.0


def test_files_are_opened_with_the_keys_that_hold() -> None:
    io = RenewedFileIO(keys(1, 3600), handing_out(3600, None))
    first = io.fs_by_scheme("s3", "lake")
    assert io.fs_by_scheme("s3", "lake") is first and not io.renew()
    io.properties[ENDS] = "0"
    second = io.fs_by_scheme("s3", "lake")
    assert second is not first and not second.equals(first)
    assert io.properties["s3.session-token"] == "token-2"
    assert io.new_output("s3://lake/a")._filesystem is second
    # Refused before their time. The next ones do not say when they end: nothing of the former is left.
    assert io.renew(refused=True)
    assert ENDS not in io.properties
    assert io.new_input("s3://lake/a")._filesystem.equals(PyArrowFileIO(io.properties).fs_by_scheme("s3", "lake"))
    assert io.properties["s3.access-key-id"] == "key-3"


def test_a_catalog_that_is_away_is_asked_again_after_a_pause_while_keys_may_hold(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[float] = []

    def away() -> Mapping[str, Any]:
        asked.append(time.time())
        raise ConnectionError("nobody there")

    io = RenewedFileIO(keys(1, None), away)
    io._age._taken -= 601
    for _ in range(3):
        io.fs_by_scheme("s3", "lake")
    assert len(asked) == 1
    assert "nobody there" in caplog.text and "hidden" not in caplog.text
    monkeypatch.setattr(renewed_file_io, "PAUSE_SECONDS", 0.0)
    io._not_before = 0.0
    io.fs_by_scheme("s3", "lake")
    io.fs_by_scheme("s3", "lake")
    assert len(asked) == 3
    # Once they are known to have ended, there is nothing to go on with.
    io.properties[ENDS] = "0"
    with pytest.raises(ConnectionError):
        io.new_input("s3://lake/a")


def test_another_table_of_the_same_name_gives_no_keys() -> None:
    io = RenewedFileIO(keys(1, 0), lambda: None)
    assert not io.renew()
    assert io.properties["s3.access-key-id"] == "key-1"


def test_in_another_process_it_has_the_keys_of_now(tmp_path: Path) -> None:
    io = RenewedFileIO(keys(1, 3600), handing_out())
    sent = pickle.loads(pickle.dumps(io))
    assert type(sent) is StoreFileIO
    assert keys_of(sent.properties) == keys_of(io.properties)
    with io.new_output(f"file://{tmp_path}/a").create() as stream:
        stream.write(b"x")
    with io.new_input(f"file://{tmp_path}/a").open() as stream:
        assert stream.read() == b"x"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("AWS Error INVALID_ACCESS_KEY_ID during CreateMultipartUpload operation: The access", "INVALID_ACCESS_KEY_ID"),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "ACCESS_DENIED"),
        ("AWS Error UNKNOWN (HTTP status 400): Unable to parse ExceptionName: ExpiredToken", "ExpiredToken"),
        ("AWS Error UNKNOWN (HTTP status 403) during PutObject", "HTTP status 403"),
        ("AWS Error SLOW_DOWN during PutObject operation", None),
        ("AWS Error UNKNOWN (HTTP status 503) during PutObject", None),
        ("No space left on device", None),
    ],
)
def test_a_refusal_of_keys_is_told_from_other_failures(said: str, word: str | None) -> None:
    assert refused_keys(said) == word


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
