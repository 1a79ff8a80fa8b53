"""`frazil at` and `frazil tag` of a stream with several tables: every record in each table that has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import load_catalog

from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.cli.main import main
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream

CHANGES, DELETES, DEAD = "orders.changes", "orders.deletes", f"{SINK}_dead"
KINDS = ["INS", "UPD", "DEL", "OWN", "other"]
DOCUMENTS: list[dict[str, Any]] = [{"id": f"a{n}", "type": kind, "n": n} for n, kind in enumerate(KINDS)]


@pytest.fixture
def stream(tmp_path: Path) -> RoutedStream:
    made = RoutedStream(tmp_path / "home", ROUTE)
    made.land(*DOCUMENTS)
    made.land({"id": "a5", "type": "DEL", "n": 5}, batch=1)
    return made


def command(stream: RoutedStream, name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(stream.home), name, "payments", *arguments])


def facts(stream: RoutedStream, name: str, *arguments: str) -> Any:
    result = command(stream, name, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def of_record(offset: int) -> list[str]:
    return ["--partition", "0", "--offset", str(offset)]


def snapshot_ids(stream: RoutedStream, name: str) -> list[int]:
    return [each.snapshot_id for each in stream.catalog.load_table(name).snapshots()]


def read_by(stream: RoutedStream, line: str) -> pa.Table:
    """What the line of PyIceberg that is printed gives."""
    properties = stream.settings.catalog.revealed()
    return eval(line, {"load_catalog": lambda name: load_catalog(name, **properties)})


def expire_all_but_the_head(stream: RoutedStream, name: str) -> None:
    table = stream.catalog.load_table(name)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()][:-1]).commit()


@pytest.mark.parametrize("filled", [False, True], ids=["stamps", "ledger"])
def test_a_record_is_told_of_every_table_that_has_it(stream: RoutedStream, filled: bool) -> None:
    if filled:
        fill_ledger(stream.catalog, stream.settings, [stream.spec])
    tables = {0: [CHANGES], 1: [CHANGES, DELETES], 2: [DELETES], 3: [SINK], 5: [DELETES]}
    for offset, names in tables.items():
        found = facts(stream, "at", *of_record(offset))
        assert (found["fate"], [row["table"] for row in found["rows"]]) == ("row", names), offset
        for row in found["rows"]:
            assert row["snapshot_id"] == row["read"]["snapshot_id"] and row["read"]["exact"] and row["certain"]
            assert row["snapshot_id"] in snapshot_ids(stream, row["table"])
            rows = read_by(stream, row["read"]["pyiceberg"])
            assert rows.column("id").to_pylist() == [f"a{offset}"]
            assert f"frazil.{row['table']} VERSION AS OF {row['snapshot_id']} WHERE" in row["read"]["spark"]
        assert (found["table"], found["read"]) == (names[0], found["rows"][0]["read"])
        assert (found["landing_table"], found["landing"]["batch"]) == (SINK, 1 if offset == 5 else 0)
    letter = facts(stream, "at", *of_record(4))
    assert (letter["fate"], letter["table"], letter["rows"]) == ("dead_letter", DEAD, [])
    assert read_by(stream, letter["read"]["pyiceberg"]).column("offset").to_pylist() == [4]
    waiting = facts(stream, "at", *of_record(6))
    assert (waiting["fate"], waiting["stands_at"]) == ("not_read", 6)


def test_what_is_said_of_it(stream: RoutedStream) -> None:
    said = command(stream, "at", *of_record(1)).stdout
    assert "offset 1 is a row of orders.changes and orders.deletes." in said
    assert said.count("  row in     ") == 2 and "  row in     orders.deletes\n  committed  " in said
    (own, *_) = [line for line in said.splitlines() if line.startswith("  committed")]
    assert own.endswith(f"snapshot {snapshot_ids(stream, SINK)[-2]} of {SINK}")
    assert f"frazil.{CHANGES} VERSION AS OF" in said and f"frazil.{DELETES} VERSION AS OF" in said
    alone = command(stream, "at", *of_record(3)).stdout
    assert f"is a row of {SINK}." in alone and "row in" not in alone
    first = command(stream, "at", *of_record(1), "--table", DELETES, "--json")
    assert [row["table"] for row in json.loads(first.stdout)["rows"]] == [DELETES, CHANGES]


def test_a_record_of_several_tables_whose_snapshots_have_expired(stream: RoutedStream) -> None:
    stream.land(*({**each, "id": f"b{each['n']}"} for each in DOCUMENTS), batch=2)
    fill_ledger(stream.catalog, stream.settings, [stream.spec])
    for name in stream.spec.target_names:
        expire_all_but_the_head(stream, name)
    found = facts(stream, "at", *of_record(1))
    assert [(row["table"], row["expired"], row["read"]["exact"]) for row in found["rows"]] == [
        (CHANGES, True, False),
        (DELETES, True, False),
    ]
    for row in found["rows"]:
        assert read_by(stream, row["read"]["pyiceberg"]).column("id").to_pylist() == ["a1"]
    stream.catalog.load_table(DELETES).delete("id = 'a1'")
    expire_all_but_the_head(stream, DELETES)
    assert [row["table"] for row in facts(stream, "at", *of_record(1))["rows"]] == [CHANGES]
    stream.catalog.load_table(CHANGES).delete("id = 'a1'")
    expire_all_but_the_head(stream, CHANGES)
    gone = facts(stream, "at", *of_record(1))
    # Others of the batch became dead letters; this one is among none.
    assert (gone["fate"], gone["deleted"], gone["rows"], gone["read"]) == ("row", True, [], None)


def test_a_table_that_the_route_has_no_more_is_told_all_the_same(stream: RoutedStream) -> None:
    less = {**ROUTE, "tables": [{"match": ".*", "table": CHANGES}]}
    after = RoutedStream(stream.home, less, epoch=2)
    after.log = stream.log
    after.land({"id": "a6", "type": "DEL"}, batch=2)
    assert [row["table"] for row in facts(after, "at", *of_record(1))["rows"]] == [CHANGES, DELETES]
    assert [row["table"] for row in facts(after, "at", *of_record(6))["rows"]] == [CHANGES]
    after.catalog.drop_table(DELETES)
    found = facts(after, "at", *of_record(5))
    assert (found["fate"], found["rows"], found["deleted"]) == ("row", [], False)
    assert "is a row, of a table that is not there any more." in command(after, "at", *of_record(5)).stdout
    assert [row["table"] for row in facts(after, "at", *of_record(1))["rows"]] == [CHANGES]


def test_a_table_that_is_not_told_of_by_the_stamp_of_a_batch_is_asked_if_it_was_read_again(
    stream: RoutedStream,
) -> None:
    """The route was changed, and an operator moved the stream back: the record is a row where each said."""
    for name in (DEAD, SINK, CHANGES, DELETES):
        target = Target(stream.catalog, name, "payments")
        newest = target.read()
        assert newest is not None
        moved = {stream.at: 0}
        target.restamp(replace(newest, kind="accept", note="ada: again", start=moved, position=moved))
    everywhere = {**ROUTE, "tables": [{"match": ".*", "table": "orders.all"}]}
    after = RoutedStream(stream.home, everywhere, epoch=2)
    after.log = stream.log
    after.land(batch=0)
    assert after.offsets("orders.all") == [0, 1, 2, 3, 4, 5]
    rows = facts(after, "at", *of_record(1))["rows"]
    assert [row["table"] for row in rows] == ["orders.all", CHANGES, DELETES]
    for row in rows:
        assert read_by(after, row["read"]["pyiceberg"]).column("id").to_pylist() == ["a1"]


def test_rows_of_any_of_the_tables_are_found(stream: RoutedStream) -> None:
    (found,) = facts(stream, "at", "--row", "id = 'a1'")
    assert (found["offset"], [row["table"] for row in found["rows"]]) == (1, [CHANGES, DELETES])
    # Its own table first, then the others.
    offsets = [each["offset"] for each in facts(stream, "at", "--row", "n >= 2")]
    assert offsets[0] == 3 and sorted(offsets) == [2, 3, 5]
    named = facts(stream, "at", "--table", CHANGES, "--row", "n >= 0")
    assert [each["offset"] for each in named] == [0, 1]
    refused = command(stream, "at", "--row", "id = 'nobody'")
    assert "no row of the tables of stream payments fits" in refused.stderr
    refused = command(stream, "at", "--table", CHANGES, "--row", "id = 'a2'")
    assert f"no row of table {CHANGES} fits" in refused.stderr


def test_snapshots_of_any_of_the_tables(stream: RoutedStream) -> None:
    fill_ledger(stream.catalog, stream.settings, [stream.spec])
    for name in (SINK, CHANGES, DELETES):
        newest = snapshot_ids(stream, name)[-1]
        found = facts(stream, "at", "--snapshot", str(newest))
        assert (found["table"], found["snapshot_id"], found["kind"]) == (name, newest, "batch")
        assert {each["counts"]["landed"] for each in found["ranges"]} == {1 if name != CHANGES else 2}
    gone = snapshot_ids(stream, DELETES)[-2]
    expire_all_but_the_head(stream, DELETES)
    found = facts(stream, "at", "--snapshot", str(gone))
    assert (found["table"], found["read"]["snapshot_id"]) == (DELETES, snapshot_ids(stream, DELETES)[-1])


def test_a_table_without_rows_is_as_complete_as_its_stream(stream: RoutedStream) -> None:
    target = Target(stream.catalog, SINK, "payments")
    newest = target.read()
    assert newest is not None

    def complete(at_ms: int) -> Any:
        def claimed(before: Stamp | None) -> Stamp:
            return replace(newest.claimed(newest.epoch + 1), valid_through_ms=at_ms)

        return claimed

    target.claim(newest.epoch + 1, complete(1_798_765_200_000))
    at = ["--timestamp", "2027-01-01T00:30:00Z"]
    # Its newest batch had no rows for this table; the one of `orders.deletes` it did, which has them.
    for name in (CHANGES, DELETES):
        found = facts(stream, "at", *at, "--table", name)["complete"]
        assert (found["table"], found["snapshot_id"]) == (name, snapshot_ids(stream, name)[-1])
    later = facts(stream, "at", "--timestamp", "2027-01-01T01:30:00Z", "--table", CHANGES)
    assert later["complete"] is None
    assert facts(stream, "tag", "then", *at, "--table", CHANGES)["snapshot_id"] == snapshot_ids(stream, CHANGES)[-1]
    # What the table is still to get of the newest batch keeps it from being complete.
    not_committed_yet(stream, DELETES)
    assert facts(stream, "at", *at, "--table", DELETES)["complete"] is None


def not_committed_yet(stream: RoutedStream, name: str) -> None:
    """The table as it was before its newest batch, which its stream's own table has already."""
    before = snapshot_ids(stream, name)[-2]
    table = stream.catalog.load_table(name)
    with table.transaction() as change:
        summary = next(each for each in table.snapshots() if each.snapshot_id == before).summary
        assert summary is not None
        change.set_properties({"frazil.stamp.payments": summary.additional_properties["frazil.stamp"]})
    table.manage_snapshots().set_current_snapshot(snapshot_id=before).commit()


def test_a_table_that_is_still_to_get_its_rows_is_told(stream: RoutedStream) -> None:
    stream.land({"id": "a6", "type": "UPD", "n": 6}, {"id": "a7", "type": "DEL", "n": 7}, batch=2)
    not_committed_yet(stream, DELETES)
    both = facts(stream, "at", *of_record(6))
    assert ([row["table"] for row in both["rows"]], both["pending_tables"]) == ([CHANGES], [DELETES])
    only = facts(stream, "at", *of_record(7))
    assert (only["fate"], only["rows"], only["pending_tables"]) == ("row", [], [DELETES])
    said = command(stream, "at", *of_record(7)).stdout
    assert f"is a row of {DELETES}, where it is not committed yet." in said
    # What came before is there.
    before = facts(stream, "at", *of_record(5))
    assert ([row["table"] for row in before["rows"]], before["pending_tables"]) == ([DELETES], [])


def test_tags_of_each_table(stream: RoutedStream) -> None:
    assert facts(stream, "tag", "newest")["table"] == SINK
    refs = stream.catalog.load_table(SINK).metadata.refs
    assert refs["newest"].snapshot_id == snapshot_ids(stream, SINK)[-1]
    for name in (CHANGES, DELETES):
        made = facts(stream, "tag", "newest", "--table", name)
        assert (made["table"], made["snapshot_id"]) == (name, snapshot_ids(stream, name)[-1])
        of = facts(stream, "tag", "record", "--table", name, *of_record(1))
        assert stream.catalog.load_table(name).scan().use_ref("record").to_arrow().num_rows > 0
        assert of["snapshot_id"] in snapshot_ids(stream, name)
        assert [each["tag"] for each in facts(stream, "tag", "--list", "--table", name)["tags"]] == ["newest", "record"]
    refused = command(stream, "tag", "other", *of_record(1))
    assert refused.exit_code == 1 and f"it is a row of {CHANGES} and {DELETES}" in refused.stderr
    assert f"--table {CHANGES}" in refused.stderr
    of_changes = snapshot_ids(stream, CHANGES)[-1]
    refused = command(stream, "tag", "other", "--snapshot", str(of_changes))
    assert refused.exit_code == 1 and f"is of table {CHANGES}, and not of {SINK}" in refused.stderr
    assert facts(stream, "tag", "other", "--snapshot", str(of_changes), "--table", CHANGES)["changed"]


@pytest.mark.parametrize("name", ["at", "tag"])
def test_a_table_that_the_stream_has_not(stream: RoutedStream, name: str) -> None:
    made = ["other"] if name == "tag" else []
    refused = command(stream, name, *made, *of_record(1), "--table", "orders.change")
    assert refused.exit_code == 1 and "stream payments has no table orders.change." in refused.stderr
    assert "Next: --table orders.changes" in refused.stderr
    refused = command(stream, name, *made, *of_record(1), "--table", "x")
    assert f"one of: rows, dead_letters, {SINK}, {DEAD}, {CHANGES}, {DELETES}" in refused.stderr
