from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import requests
from pyiceberg.exceptions import ServerError
from sqlalchemy import create_engine, text

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings, load_settings
from jobs.tables.commit.stamp.errors import CommitUnknownError


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("FRAZIL_TEST_PW", "hunter2")
    (tmp_path / "frazil.yaml").write_text(
        "catalog: {name: lake, properties: {uri: 'postgresql://me:${env:FRAZIL_TEST_PW}@db/lake', warehouse: /data}}\n"
    )
    return load_settings(None, home=tmp_path)


def told(settings: Settings, problem: Exception) -> FrazilError:
    with pytest.raises(FrazilError) as raised, translate_errors(settings, "payments"):
        raise problem
    assert raised.value.__suppress_context__
    assert "hunter2" not in str(raised.value)
    assert raised.value.fix and "`frazil run payments`" in raised.value.fix
    return raised.value


def test_a_full_disk(settings: Settings) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    told = translate_errors(settings, "payments")
    with pytest.raises(FrazilError, match=r"stream payments: No space left on device\.") as raised, told:
        Path("/dev/full").write_bytes(b"x" * 100_000)
    assert raised.value.fix and raised.value.fix.startswith("free space")


def test_a_file_that_cannot_be_read(settings: Settings, tmp_path: Path) -> None:
    told = translate_errors(settings, "payments")
    with pytest.raises(FrazilError, match=r"stream payments: .*/none: No such file or directory\."), told:
        (tmp_path / "none").read_bytes()


def test_a_database_error_without_its_statement(settings: Settings) -> None:
    engine = create_engine("sqlite://")
    try:
        told = translate_errors(settings, "payments")
        with pytest.raises(FrazilError) as raised, told, engine.connect() as connection:
            connection.execute(text("select :pw from nowhere"), {"pw": "hunter2"})
    finally:
        engine.dispose()
    message = raised.value.message
    assert message.startswith(
        "stream payments: catalog lake failed: OperationalError: (sqlite3.OperationalError) no such"
    )
    assert "hunter2" not in message and "SQL:" not in message


@pytest.mark.parametrize(
    "problem",
    [ServerError("500 for postgresql://me:hunter2@db/lake"), requests.ConnectionError("refused: hunter2")],
)
def test_a_catalog_service_that_fails(settings: Settings, problem: Exception) -> None:
    error = told(settings, problem)
    assert error.message.startswith(f"stream payments: catalog lake failed: {type(problem).__name__}: ")
    assert "${env:FRAZIL_TEST_PW}" in error.message


@pytest.mark.parametrize(
    "problem",
    [
        CommitUnknownError("told already"),
        ZeroDivisionError("a fault of ours"),
        sqlite3.Error("of no catalog"),
        # As of `frazil query payments | head`.
        BrokenPipeError(32, "Broken pipe"),
    ],
)
def test_what_is_told_already_and_what_nobody_expected_stay_as_they_are(settings: Settings, problem: Exception) -> None:
    with pytest.raises(type(problem)) as raised, translate_errors(settings, "payments"):
        raise problem
    assert raised.value is problem
