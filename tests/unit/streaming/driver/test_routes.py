"""Streams with a route, on real tables: every record in the tables that its value names, once, and audited."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.context import open_stream
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.errors import CommitUnknownError, ToleranceError
from jobs.tables.ledger.ledger_table import find_ledger, read_ledger
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.helpers.stories import Killed, audited, forget_records, killed

KINDS = ["INS", "UPD", "DEL", "OWN", "other", None]
DOCUMENTS: list[dict[str, Any]] = [
    {"id": f"a{number}", "type": KINDS[number % len(KINDS)], "n": number} for number in range(30)
]


def test_each_record_stands_in_the_tables_that_its_value_names(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    first = one.land(*DOCUMENTS[:13])
    second = one.land(*DOCUMENTS[13:], b"{", batch=1)
    assert one.spec.target_names == (SINK, f"{SINK}_dead", "orders.changes", "orders.deletes")
    placed = one.placed()
    expected = {name: [o for o in offsets if o < 30] for name, offsets in expected_of(one).items()}
    expected[f"{SINK}_dead"].append(30)
    assert placed == expected
    counts = first.counts + second.counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones) == (31, 20, 11, 0)
    assert set(one.letters.values()) == {"unrouted", "malformed_json"}
    changes = one.catalog.load_table("orders.changes")
    assert len(changes.spec().fields) == 1 and not one.table.spec().fields
    audited(one)


def expected_of(one: RoutedStream) -> dict[str, list[int]]:
    one.log, kept = [each for each in one.log if each != b"{"], one.log
    found = one.expected()
    one.log = kept
    return found


def test_a_record_that_one_of_its_tables_cannot_hold_goes_to_none_of_them(tmp_path: Path) -> None:
    route = {**ROUTE, "tables": [*ROUTE["tables"], {"match": "UPD", "table": "orders.by_n", "partition_by": ["n"]}]}
    RoutedStream(tmp_path / "home", route)
    table = RoutedStream(tmp_path / "home", route, epoch=2).catalog.load_table("orders.by_n")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("_must", LongType())
    one = RoutedStream(tmp_path / "home", route, epoch=3)
    one.land({"id": "a", "type": "UPD", "n": 1}, {"id": None, "type": "UPD", "n": 1}, {"id": "c", "type": "INS"})
    assert one.placed() == {"orders.by_n": [0], "orders.changes": [0, 2], "orders.deletes": [0], f"{SINK}_dead": [1]}
    audited(one)


@pytest.mark.parametrize("unmatched", [SINK, "orders.rest"])
def test_what_no_table_takes_goes_where_the_file_says(tmp_path: Path, unmatched: str) -> None:
    one = RoutedStream(tmp_path / "home", {**ROUTE, "unmatched": {"table": unmatched}})
    one.land(*DOCUMENTS)
    assert one.placed() == one.expected() and not one.letters
    assert one.offsets(unmatched)[:2] == ([3, 4] if unmatched == SINK else [4, 5])
    audited(one)


def test_a_route_by_topic_and_one_by_a_number(tmp_path: Path) -> None:
    by_topic = {"by": "topic", "tables": [{"match": "pay.*", "table": "orders.pay"}, {"match": "x", "table": SINK}]}
    one = RoutedStream(tmp_path / "one", by_topic)
    one.land(*DOCUMENTS[:4])
    assert one.placed() == {"orders.pay": [0, 1, 2, 3]}
    audited(one)
    by_number = {"by": "n", "tables": [{"match": ["1", "3"], "table": "orders.odd"}], "unmatched": {"table": SINK}}
    two = RoutedStream(tmp_path / "two", by_number)
    two.land(*DOCUMENTS[:4])
    assert two.placed() == {SINK: [0, 2], "orders.odd": [1, 3]}


def test_what_is_dropped_is_counted_as_filtered_and_the_audit_knows(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {**ROUTE, "unmatched": "drop"})
    done = one.land(*DOCUMENTS[:6])
    counts = done.counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones, counts.filtered) == (6, 4, 0, 0, 2)
    assert one.placed() == {SINK: [3], "orders.changes": [0, 1], "orders.deletes": [1, 2]}
    audited(one)


def test_what_no_table_takes_stops_a_stream_whose_file_says_so_and_nothing_of_the_batch_lands(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {**ROUTE, "unmatched": "fail"})
    one.land(*DOCUMENTS[:3])
    before = one.placed()
    with pytest.raises(ToleranceError, match=r"no table of the route takes 4 of 9 records.*offset 4: unrouted"):
        one.land(*DOCUMENTS[3:12], batch=1)
    assert one.placed() == before
    after = RoutedStream(tmp_path / "home", {**ROUTE, "unmatched": "drop"}, epoch=2)
    after.log = one.log
    after.land(batch=1)
    assert after.offsets("orders.changes") == [0, 1, 6, 7] and not after.letters
    audited(after)


def test_a_route_by_an_expression_and_its_letters(tmp_path: Path) -> None:
    route = {"by": "case when 6 / n > 2 then 'few' end", "tables": [{"match": "few", "table": "orders.few"}]}
    one = RoutedStream(tmp_path / "home", route)
    one.land(*DOCUMENTS[:4])
    assert one.placed() == {"orders.few": [1, 2], f"{SINK}_dead": [0, 3]}
    assert one.letters == {0: "expression_failed", 3: "unrouted"}
    rows = one.catalog.load_table(f"{SINK}_dead").scan().to_arrow().sort_by("offset").to_pylist()
    assert [(each["stage"], each["row_before"]) for each in rows] == [
        ("route", '{"id":"a0","type":"INS","n":0}'),
        ("route", '{"id":"a3","type":"OWN","n":3}'),
    ]
    audited(one)


def test_rows_are_routed_behind_the_streams_own_steps(tmp_path: Path) -> None:
    steps = [{"where": "n <> 2"}, {"compute": {"size": "CASE WHEN n > 2 THEN 'big' ELSE 'small' END"}}]
    route = {"by": "size", "tables": [{"match": "big", "table": "orders.big"}], "unmatched": {"table": SINK}}
    rules = [{"name": "known", "expect": "type IS NOT NULL"}]
    one = RoutedStream(tmp_path / "home", route, transform=steps, rules=rules)
    done = one.land(*DOCUMENTS[:6])
    assert one.placed() == {SINK: [0, 1], "orders.big": [3, 4], f"{SINK}_dead": [5]}
    assert (done.counts.read, done.counts.landed, done.counts.dead, done.counts.filtered) == (6, 4, 1, 1)
    audited(one)


def test_a_route_is_added_to_a_stream_that_has_landed(tmp_path: Path) -> None:
    plain = RoutedStream(tmp_path / "home")
    plain.land(*DOCUMENTS[:6])
    routed = RoutedStream(tmp_path / "home", ROUTE, epoch=2)
    routed.log = plain.log
    routed.land(*DOCUMENTS[6:12], batch=1)
    assert routed.placed() == {
        SINK: [0, 1, 2, 3, 4, 5, 9],
        f"{SINK}_dead": [10, 11],
        "orders.changes": [6, 7],
        "orders.deletes": [7, 8],
    }
    audited(routed)
    after = RoutedStream(tmp_path / "home", epoch=3)
    after.log = routed.log
    after.land(*DOCUMENTS[12:18], batch=2)
    assert after.offsets(SINK) == [0, 1, 2, 3, 4, 5, 9, *range(12, 18)]
    audited(after)


def test_an_audit_names_a_row_that_is_gone_and_one_too_many_in_any_table(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS)
    table = one.catalog.load_table("orders.deletes")
    table.delete("n = 2")
    own = one.table
    own.append(own.scan(row_filter="n = 3").to_arrow())
    fill_ledger(one.catalog, one.settings, [one.spec])
    found = audit(one.spec, one.settings, one.catalog, full=True)
    told = {(each.kind, each.table) for each in found.problems}
    assert told == {("missing", "orders.deletes"), ("doubled", SINK)}


def test_the_coordinator_says_who_has_rows_and_how_many_records_landed_elsewhere(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:4])
    one.land(DOCUMENTS[6], batch=1)
    newest = history(one.table.metadata, "payments").newest
    assert newest is not None and set(newest.rows) == {"orders.changes"}
    assert set(newest.targets) == set(one.spec.target_names)
    assert newest.parts[one.at].elsewhere == 1 and newest.counts.landed == 1
    assert '"orders.changes"' not in one.table.properties["frazil.stamp.payments"]
    of_other = history(one.catalog.load_table("orders.changes").metadata, "payments").newest
    assert of_other is not None and dict(of_other.rows) == {"orders.changes": 1}
    fill_ledger(one.catalog, one.settings, [one.spec])
    rows = [row for row in read_ledger(one.catalog, one.settings, "payments", SINK) if row.counts]
    assert [(row.counts.landed, row.elsewhere, row.rows("rows")) for row in rows if row.counts] == [
        (4, 3, 1),
        (1, 1, 0),
    ]


def test_a_ledger_of_an_earlier_release_gets_its_column(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home")
    one.land(*DOCUMENTS[:6])
    fill_ledger(one.catalog, one.settings, [one.spec])
    ledger = find_ledger(one.catalog, one.settings)
    assert ledger is not None
    with ledger.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("elsewhere")
    assert [row.elsewhere for row in read_ledger(one.catalog, one.settings, "payments") if row.counts] == [0]
    routed = RoutedStream(tmp_path / "home", ROUTE, epoch=2)
    routed.log = one.log
    routed.land(*DOCUMENTS[6:12], batch=1)
    audited(routed)


def test_a_table_that_is_altered_after_the_others_have_the_batch_stops_the_stream_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:2])
    target = one.stream.targets["orders.deletes"]

    def altered(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        with one.catalog.load_table("orders.deletes").update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("n")
        return target.land(*args, **kwargs)

    monkeypatch.setattr(target, "land", altered)
    with pytest.raises(FrazilError):
        one.land(*DOCUMENTS[2:8], batch=1)
    assert one.offsets("orders.deletes") == [1]
    newest = history(one.table.metadata, "payments").newest
    assert newest is not None and newest.rows.get("orders.deletes"), "the coordinator says who lacks the batch"
    with one.catalog.load_table("orders.deletes").update_schema() as change:
        change.add_column("n", LongType())


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("killed_at", ["orders.changes", "orders.deletes", f"{SINK}_dead"])
def test_a_batch_that_a_crash_left_in_some_tables_is_completed_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str, recorded: bool
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:6])

    monkeypatch.setattr(one.stream.targets[killed_at], "land", killed)
    with pytest.raises(Killed):
        one.land(*DOCUMENTS[6:14], batch=1)
    assert one.placed() != one.expected()
    if not recorded:
        forget_records(one)
    after = RoutedStream(tmp_path / "home", ROUTE, epoch=2)
    after.log = one.log
    assert after.stream.recovered == int(recorded)
    after.land(*DOCUMENTS[14:], batch=0)
    assert after.placed() == after.expected()
    audited(after)


def killed_before(one: RoutedStream, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Land a batch whose driver is killed before its commit to a table."""

    monkeypatch.setattr(one.stream.targets[table], "land", killed)
    with pytest.raises(Killed):
        one.land(*DOCUMENTS[6:14], batch=1)


def without(table: str) -> dict[str, Any]:
    """The route without a table."""
    return {**ROUTE, "tables": [each for each in ROUTE["tables"] if each["table"] != table]}


@pytest.mark.parametrize("gone", ["orders.changes", "orders.deletes"])
def test_a_table_that_is_gone_does_not_keep_the_others_from_their_part_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:6])
    expected = one.expected
    killed_before(one, monkeypatch, f"{SINK}_dead")
    one.catalog.drop_table(gone)
    # Under another configuration nothing of the batch could be run again.
    after = RoutedStream(tmp_path / "home", without(gone), epoch=2)
    assert after.stream.recovered == 1 and not after.stream.folder.pending_records()
    wanted = {name: offsets for name, offsets in expected().items() if name != gone}
    assert after.placed() == wanted


def test_files_that_are_gone_of_one_table_leave_the_others_their_part_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:6])
    killed_before(one, monkeypatch, f"{SINK}_dead")
    (record,) = one.stream.folder.pending_records()
    content = one.stream.folder.store.get(record)
    assert content is not None
    files = json.loads(content)["targets"]["orders.changes"]["files"]
    one.stream.targets["orders.changes"].table.io.delete(files[0]["path"])
    after = RoutedStream(tmp_path / "home", ROUTE, epoch=2)
    after.log = one.log
    assert after.placed() == {**after.expected(), "orders.changes": [0, 1]}, "its part is to be run again, alone"
    after.land(batch=0)
    assert after.placed() == after.expected()
    audited(after)


def test_nothing_of_a_record_is_committed_without_the_coordinators_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:6])
    before = one.placed()
    killed_before(one, monkeypatch, SINK)
    (record,) = one.stream.folder.pending_records()
    content = one.stream.folder.store.get(record)
    assert content is not None
    for file in json.loads(content)["targets"][SINK]["files"]:
        one.table.io.delete(file["path"])
    after = RoutedStream(tmp_path / "home", ROUTE, epoch=2)
    after.log = one.log
    assert after.stream.recovered == 0 and after.placed() == before
    after.land(batch=0)
    assert after.placed() == after.expected()
    audited(after)


@pytest.mark.parametrize("killed_at", [SINK, "orders.deletes", f"{SINK}_dead"])
def test_a_table_that_is_begun_anew_takes_no_record_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:6])
    killed_before(one, monkeypatch, killed_at)
    one.catalog.drop_table("orders.changes")
    record_answer(one.spec, one.settings, lambda: None, Answer(recreated_table="orders.changes"), "ada: it was empty")  # type: ignore[arg-type]
    assert bool(one.stream.folder.pending_records()) == (killed_at != SINK)
    after = RoutedStream(tmp_path / "home", ROUTE, epoch=9)
    after.log = one.log
    assert after.stream.recovered == int(killed_at != SINK)
    after.land(*DOCUMENTS[14:20], batch=0)
    # Nobody had the batch yet: then the new table gets it, too.
    since = 6 if killed_at == SINK else 14
    changes = [offset for offset in after.expected()["orders.changes"] if offset >= since]
    assert after.placed() == {**after.expected(), "orders.changes": changes}


@pytest.mark.parametrize("rolled", ["orders.deletes", SINK, f"{SINK}_dead"])
def test_a_table_of_a_route_that_was_rolled_back_is_landed_again_alone(tmp_path: Path, rolled: str) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:6])
    back = one.catalog.load_table(rolled).metadata.current_snapshot_id
    assert back is not None
    for batch, (first, last) in enumerate([(6, 12), (12, 24), (24, 30)], 1):
        one.land(*DOCUMENTS[first:last], batch=batch)
    expected = one.placed()
    one.catalog.load_table(rolled).manage_snapshots().rollback_to_snapshot(back).commit()
    record_answer(one.spec, one.settings, lambda: None, Answer(rollback="reland"), "ada: a slip")  # type: ignore[arg-type]
    after = RoutedStream(tmp_path / "home", ROUTE, epoch=9)
    after.log = one.log
    # More records fail of what is landed again than of the newest batch.
    after.land(batch=0)
    assert after.placed() == expected == after.expected()
    after.land({"id": "b", "type": "DEL"}, {"id": "c"}, batch=1)
    assert after.placed() == after.expected()


EACH: dict[str, Any] = {
    "by": "type",
    "tables": [{"match": [kind], "table": f"orders.t_{kind.lower()}"} for kind in "ABCDEFGH"],
    "unmatched": {"table": SINK},
}
OF_EACH: list[dict[str, Any]] = [{"id": f"i{n}", "type": "ABCDEFGHX"[n % 9], "n": n} for n in range(36)]


@pytest.fixture
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits as to a catalog elsewhere, also of SQLite."""
    monkeypatch.setattr(open_stream, "most_commits", lambda catalog: 8)


@pytest.mark.usefixtures("_together")
def test_tables_are_committed_to_together_and_the_coordinator_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", EACH)
    together, order = threading.Barrier(8), list[str]()

    def watched(name: str, target: Any) -> Any:
        land = target.land

        def landed(*args: Any, **kwargs: Any) -> Any:
            order.append(name)
            if name != SINK:
                # All eight are under way before any is made.
                together.wait(30.0)
            return land(*args, **kwargs)

        return landed

    for name, target in one.stream.targets.items():
        monkeypatch.setattr(target, "land", watched(name, target))
    one.land(*OF_EACH)
    assert order[0] == SINK and len(order) == 9
    assert one.placed() == one.expected()
    audited(one)


@pytest.mark.usefixtures("_together")
@pytest.mark.parametrize("failing", ["orders.t_a", "orders.t_e", "orders.t_h"])
@pytest.mark.parametrize("landed", [True, False])
def test_one_unclear_answer_keeps_files_and_record_while_the_others_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, landed: bool
) -> None:
    one = RoutedStream(tmp_path / "home", EACH)
    target = one.stream.targets[failing]
    land = target.land

    def unclear(*args: Any, **kwargs: Any) -> Any:
        if landed:
            land(*args, **kwargs)
        raise CommitUnknownError("the catalog did not say")

    monkeypatch.setattr(target, "land", unclear)
    with pytest.raises(CommitUnknownError):
        one.land(*OF_EACH)
    assert len(one.stream.folder.pending_records()) == 1
    lacking = not landed or len(one.placed()) < 9
    after = RoutedStream(tmp_path / "home", EACH, epoch=2)
    after.log = one.log
    assert after.placed() == after.expected(), "all of it is in, from the record: no file was dropped"
    assert after.stream.recovered == int(lacking)
    audited(after)


@pytest.mark.usefixtures("_together")
def test_a_table_that_was_altered_meanwhile_gets_its_rows_again_and_the_others_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", EACH)
    target, others = one.stream.targets["orders.t_c"], threading.Event()
    land = target.land

    def altered(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(target, "land", land)
        with one.catalog.load_table("orders.t_c").update_spec() as change:
            change.add_identity("n")
        # As a head that was found moved: the table is read again.
        target.read()
        others.set()
        return land(*args, **kwargs)

    monkeypatch.setattr(target, "land", altered)
    one.land(*OF_EACH)
    assert others.is_set() and one.runs == 2
    assert one.placed() == one.expected()
    newest = {name: len(one.catalog.load_table(name).metadata.snapshots) for name in one.spec.target_names}
    assert newest["orders.t_c"] == newest["orders.t_d"] == 1, "each was committed to once"
    audited(one)


@pytest.mark.usefixtures("_together")
def test_a_batch_of_many_tables_is_completed_from_its_record_by_several_commits_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", EACH)

    for name in one.spec.target_names[1:]:
        monkeypatch.setattr(one.stream.targets[name], "land", killed)
    with pytest.raises(Killed):
        one.land(*OF_EACH)
    assert set(one.placed()) == {SINK}
    after = RoutedStream(tmp_path / "home", EACH, epoch=2)
    after.log = one.log
    assert after.stream.recovered == 1 and after.placed() == after.expected()
    audited(after)
