"""Replays of a stream each of whose tables has columns of its own: a letter is decoded by its topic's table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StringType

from jobs.base.errors import FrazilError
from jobs.config.settings.correction import parse_correction
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.lanes import ReplayLanes
from jobs.dead_letters.replay.pipeline import dead_letter_pipeline
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import dry_run, replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.pipeline.pipeline import Pipeline
from tests.helpers.lane_stream import DEAD, LaneStream

FAIL: dict[str, Any] = {"decode": {"value": "json", "schema": "infer", "unknown_fields": "fail"}}
ROUTE: dict[str, Any] = {"by": "replace(_topic, '.', '_')", "to": "lake.{value}"}


def replayed(one: LaneStream) -> ReplayResult:
    return replay(one.spec, one.settings, one.catalog, ReplayRequest())


def test_a_letter_comes_home_by_the_columns_of_its_topics_table_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, **FAIL, evolve={"add": "ignore"})
    one.produce("shop.a", {"id": 1})
    one.produce("shop.b", {"id": "x"})
    one.land()
    one.produce("shop.a", {"id": 2, "more": "m"}, {"id": "text"})
    one.produce("shop.b", {"id": "y", "more": "m"}, {"id": 5})
    one.land(1)
    assert len(one.letters()) == 4
    for name in ("lake.shop_a", "lake.shop_b"):
        with one.catalog.load_table(name).update_schema() as update:
            update.add_column("more", StringType())
    found = dry_run(one.spec, one.catalog, ReplayRequest())
    assert (found.replayed, found.failed_again) == (2, 2)
    found = replayed(one)
    assert (found.replayed, found.failed_again) == (2, 2)
    assert one.placed()["lake.shop_a"] == [("shop.a", 0, 0), ("shop.a", 0, 1)]
    assert one.placed()["lake.shop_b"] == [("shop.b", 0, 0), ("shop.b", 0, 1)]
    rows = one.catalog.load_table("lake.shop_b").scan().to_arrow().to_pylist()
    assert {row["id"]: row["more"] for row in rows} == {"x": None, "y": "m"}
    assert replayed(one).replayed == 0
    fill_ledger(one.catalog, one.settings, [one.spec])
    judged = audit(one.stream.spec, one.settings, one.catalog, full=True)
    assert not judged.problems and not judged.pending, judged.problems


def test_a_letter_of_a_topic_without_a_table_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [{"match": "a", "table": "lake.a"}]
    one = LaneStream(tmp_path / "home", {"by": "topic", "tables": tables}, {}, monkeypatch)
    one.produce("a", {"id": 1})
    one.produce("b", {"id": 1})
    one.land()
    found = replayed(one)
    assert (found.replayed, found.failed_again) == (0, 1)
    assert one.placed()[DEAD] == [("b", 0, 0)]
    # The file names a table for the topic now: the first record of it makes the table, and then the letter comes home.
    more = [*tables, {"match": "b", "table": "lake.b"}]
    after = LaneStream(tmp_path / "home", {"by": "topic", "tables": more}, one.log, monkeypatch, 2)
    found = replayed(after)
    assert (found.replayed, found.failed_again) == (0, 1)
    after.produce("b", {"id": 2})
    after.land()
    assert replayed(after).replayed == 1
    assert after.placed()["lake.b"] == [("b", 0, 0), ("b", 0, 1)]


def test_a_correction_that_leaves_out_a_tables_column_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch)
    one.produce("shop.a", {"id": 1, "at": {"x": 1, "y": 2}}, {"id": "text"})
    one.produce("shop.b", {"id": 1})
    one.land()
    file = one.home / "streams" / "shop.yaml"
    for text, left_out in (
        ("transform: [{drop: [at]}]", "at"),
        ("transform: [{drop: [at.y]}]", "at.y"),
        ("decode: {schema: id long}", "at"),
    ):
        request = ReplayRequest(correction=parse_correction(file, text))
        with pytest.raises(FrazilError, match=f"columns that the stream's file has: {left_out}\\. Each row"):
            dry_run(one.spec, one.catalog, request)
    nowhere = ReplayRequest(correction=parse_correction(file, "transform: [{drop: [typo]}]"))
    with pytest.raises(FrazilError, match=r"transform\[0\]\.drop.*: there is no column 'typo'"):
        dry_run(one.spec, one.catalog, nowhere)
    same = ReplayRequest(correction=parse_correction(file, "decode: {unknown_fields: ignore}"))
    assert dry_run(one.spec, one.catalog, same).null_columns == ()


def test_letters_are_decoded_by_the_decoded_columns_that_their_table_keeps_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may change alone, as steps drop what comes: the table's schema stays, and a pipeline of before is none."""
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, transform=[{"drop": ["secret"]}])
    one.produce("shop.a", {"id": 1, "secret": {"p": 1}}, {"id": "text", "secret": {"p": 1}})
    one.land()
    made: list[Schema] = []
    schemas: list[Schema] = []

    def make(spec: StreamSpec, table: Table) -> Pipeline:
        made.append(spec.resolved_for(table.schema(), table.properties).schema)
        schemas.append(table.schema())
        return dead_letter_pipeline(spec, table)

    tables: Any = SimpleNamespace(table=one.catalog.load_table)
    lanes = ReplayLanes(one.spec.with_named_tables(["lake.shop_a"]), tables, make)
    letters = one.catalog.load_table(DEAD).scan().to_arrow().to_batches()[0]
    for _ in range(2):
        assert [each.error_class for each in lanes.outcome(letters).failures] == ["wrong_type"]
    assert len(made) == 1
    one.produce("shop.a", {"id": 2, "secret": {"p": 1, "q": 2}})
    one.land(1)
    lanes.outcome(letters)
    assert len(made) == 2 and made[0] != made[1] and schemas[0] == schemas[1]
