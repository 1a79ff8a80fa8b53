"""`frazil shell` without Spark: code that runs and raises, the prompt on a pipe, and the examples."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from jobs.config.settings.settings import Settings, load_settings
from orchestration.cli.tables.shell import banner, interact, run_code


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.embedded(tmp_path)


def test_code_that_runs(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"__name__": "__main__", "spark": "the session"}
    assert run_code("import math\ndef area(r): return math.floor(r)\nprint(spark, area(2.5))", names, settings) == 0
    assert capsys.readouterr().out == "the session 2\n"
    assert run_code("raise SystemExit(3)", names, settings) == 3
    assert run_code("import sys; sys.exit()", names, settings) == 0
    assert run_code("import sys; sys.exit('a sentence')", names, settings) == 1


def test_code_that_raises_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STORE_KEY", "s3cr3t-key")
    (tmp_path / "frazil.yaml").write_text(
        "catalog: {properties: {type: rest, uri: 'http://h', token: '${env:STORE_KEY}'}}\n"
    )
    settings = load_settings(None, home=tmp_path)
    assert run_code("raise ValueError('refused s3cr3t-key')", {}, settings) == 1
    error = capsys.readouterr().err
    assert "ValueError: refused ${env:STORE_KEY}" in error and "s3cr3t" not in error
    assert run_code("1 +", {}, settings) == 1
    assert "SyntaxError" in capsys.readouterr().err


def test_the_prompt_reads_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("print(spark * 2)\nnothing\n"))
    interact({"spark": "ab"}, "the banner")
    shown = capsys.readouterr()
    assert "abab" in shown.out and "the banner" in shown.err and "NameError" in shown.err


def test_examples_name_a_table() -> None:
    lines = banner("frazil", "orders.payments").splitlines()
    assert lines[:2] == [
        'spark.table("frazil.orders.payments").show()',
        'sql("SELECT count(*) FROM frazil.orders.payments").show()',
    ]
    assert "frazil.`order`.`my table`.snapshots" in banner("frazil", "order.my table").splitlines()[2]
