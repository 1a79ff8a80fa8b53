"""Letters of a stream with a route land in the tables that it names: in each once, and where they are missing only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.config.settings.correction import parse_correction
from jobs.config.settings.loading import load_stream
from jobs.dead_letters.expiry.dead_letter_states import set_states_by_rows
from jobs.dead_letters.replay import session as replay_sessions
from jobs.dead_letters.replay.request import MAX_LETTERS, ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import dry_run, replay
from jobs.dead_letters.replay.session import ReplaySession, replay_folder
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.tally import tally_dead_letters
from orchestration.sensors.replay_proposal import propose_replay
from tests.helpers.evolving_stream import SINK
from tests.helpers.forked import Forked, frazil
from tests.helpers.routed_stream import COLUMNS, ROUTE, RoutedStream

DEAD = f"{SINK}_dead"
# Records of all kinds; `n` is a text in every second one, which only a correction reads.
KINDS = ["INS", "UPD", "DEL", "OWN", "other"]
RECORDS = [json.dumps({"id": f"a{at}", "type": KINDS[at % 5], "n": at, "note": "x"}).encode() for at in range(10)]
LENIENT = {"decode": {"unknown_fields": "ignore"}}
PLACED = {SINK: [3, 8], "orders.changes": [0, 1, 5, 6], "orders.deletes": [1, 2, 6, 7]}


class Killed(BaseException):
    """The replay's process was killed here."""


class Letters:
    """A routed stream all of whose records are letters, for a column that they should not have."""

    def __init__(
        self, home: Path, route: dict[str, Any] = ROUTE, records: Sequence[bytes] = RECORDS, **more: Any
    ) -> None:
        strict = {"value": "json", "schema": COLUMNS, "unknown_fields": "fail"}
        self.stream = RoutedStream(home, route, **{"decode": strict, **more})
        self.file = home / "streams" / "payments.yaml"
        done = self.stream.land(*records)
        assert done.counts.dead == len(records)

    def request(self, correction: dict[str, Any] | None = LENIENT, **more: Any) -> ReplayRequest:
        given = parse_correction(self.file, yaml.safe_dump(correction)) if correction else None
        return ReplayRequest(correction=given, **more)

    def replay(self, correction: dict[str, Any] | None = LENIENT, most: int = MAX_LETTERS, **more: Any) -> ReplayResult:
        one = self.stream
        request = self.request(correction, **more)
        return replay(load_stream(self.file), one.settings, one.catalog, request, most=most)

    def dry_run(self, correction: dict[str, Any] | None = LENIENT) -> ReplayResult:
        return dry_run(load_stream(self.file), self.stream.catalog, self.request(correction))

    @property
    def placed(self) -> dict[str, list[int]]:
        """The offsets in each table of rows that has any."""
        return {name: offsets for name, offsets in self.stream.placed().items() if name != DEAD}

    @property
    def states(self) -> dict[int, str]:
        rows = self.stream.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
        return {each["offset"]: each["state"] or "new" for each in rows}

    @property
    def reasons(self) -> dict[int, tuple[str, str]]:
        """Class and message of the last replay, of letters that failed in it."""
        rows = self.stream.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
        return {
            each["offset"]: (each["replay_error_class"], each["replay_message"])
            for each in rows
            if each["replay_error_class"]
        }

    def audited(self) -> None:
        one = self.stream
        fill_ledger(one.catalog, one.settings, [one.spec])
        found = audit(one.spec, one.settings, one.catalog, full=True)
        assert not found.problems and not found.pending, (found.problems, found.pending)

    def snapshots(self, table: str) -> int:
        return len(self.stream.catalog.load_table(table).metadata.snapshots)

    def no_record_is_left(self) -> None:
        folder = replay_folder(self.stream.settings, "payments")
        assert not folder.pending_records() and not folder.store.keys("letters-*.parquet")


@pytest.mark.parametrize("branch", ["main", "ingest"])
def test_letters_land_in_each_table_that_the_route_names_and_in_no_other(tmp_path: Path, branch: str) -> None:
    one = Letters(tmp_path / "home", table={"name": SINK, "branch": branch})
    told = one.dry_run()
    assert (told.replayed, told.failed_again, one.placed) == (8, 2, {})
    done = one.replay()
    assert (done.replayed, done.standing, done.failed_again) == (8, 0, 2)
    assert one.placed == PLACED
    assert one.states == {at: "failed_again" if at % 5 == 4 else "replayed" for at in range(10)}
    assert {each for each, _ in one.reasons.values()} == {"unrouted"}
    assert done.reasons[0].stage == "route"
    one.audited()
    one.no_record_is_left()
    again = one.replay()
    assert (again.selected, again.replayed, one.placed) == (2, 0, PLACED)


@pytest.mark.parametrize("most", [1, 3])
def test_they_land_by_batches_and_the_stream_goes_on(tmp_path: Path, most: int) -> None:
    one = Letters(tmp_path / "home")
    one.stream.land(*({"id": "b", "type": kind, "n": 1} for kind in KINDS[:4]), batch=1)
    one.replay(most=most)
    one.stream.land({"id": "c", "type": "UPD", "n": 1}, batch=2)
    later = {SINK: [13], "orders.changes": [10, 11, 14], "orders.deletes": [11, 12, 14]}
    assert one.placed == {name: PLACED[name] + later[name] for name in PLACED}
    one.audited()


def test_an_audit_of_one_table_waits_for_no_replay_that_brought_it_nothing(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", records=RECORDS[:1])
    one.replay()
    assert one.placed == {"orders.changes": [0]}
    stream = one.stream
    for table in ("orders.changes", "orders.deletes"):
        found = audit(stream.spec, stream.settings, stream.catalog, table=table)
        assert (found.pending, found.problems) == ([], []), table


def test_a_table_that_no_letter_goes_to_is_not_touched(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", records=RECORDS[:1])
    before = one.snapshots("orders.deletes")
    one.replay()
    assert one.placed == {"orders.changes": [0]} and one.snapshots("orders.deletes") == before


@pytest.mark.parametrize("whence", ["lost", "recorded"])
@pytest.mark.parametrize("killed_before", ["orders.changes", "orders.deletes", DEAD, "after"])
def test_a_batch_that_some_tables_have_is_completed_in_the_others_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_before: str, whence: str
) -> None:
    one = Letters(tmp_path / "home")
    done = ReplaySession.commit

    def commit(self: ReplaySession, target: Any, *more: Any) -> Any:
        if target.name == killed_before:
            raise Killed
        return done(self, target, *more)

    def told(*args: Any, **kwargs: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ReplaySession, "commit", commit)
        if killed_before in (DEAD, "after"):
            name = "update_replay_state"
            real = getattr(replay_sessions, name)
            patched.setattr(
                replay_sessions, name, told if killed_before == DEAD else lambda *a, **k: (real(*a, **k), told())
            )
        with pytest.raises(Killed):
            one.replay()
    if whence == "lost":
        folder = replay_folder(one.stream.settings, "payments")
        for key in [*folder.pending_records(), *folder.store.keys("letters-*.parquet")]:
            folder.store.delete(key)
    if whence == "recorded":
        # Whatever the next one is asked for.
        one.replay(None, selection=Selection(reasons=("none",)))
    else:
        one.replay()
    assert one.placed == PLACED
    assert [one.states[at] for at in range(10) if at % 5 != 4] == ["replayed"] * 8
    one.audited()
    one.no_record_is_left()


def test_a_further_table_that_changes_meanwhile_gets_its_rows_by_its_new_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Letters(tmp_path / "home")
    done, altered = ReplaySession.commit, list[str]()

    def commit(self: ReplaySession, target: Any, *more: Any) -> Any:
        if target.name == "orders.deletes" and not altered:
            altered.append(target.name)
            with one.stream.catalog.load_table(target.name).update_spec() as change:
                change.add_field("n", "bucket[4]", "by_n")
        return done(self, target, *more)

    monkeypatch.setattr(ReplaySession, "commit", commit)
    result = one.replay()
    assert altered and one.placed == PLACED
    assert result.replayed + result.standing == 8 and result.standing > 0
    assert [one.states[at] for at in range(10) if at % 5 != 4] == ["replayed"] * 8
    one.audited()
    one.no_record_is_left()


def test_a_table_that_was_dropped_and_made_anew_does_not_hold_up_the_replays_behind_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Letters(tmp_path / "home")
    done = ReplaySession.commit

    def commit(self: ReplaySession, target: Any, *more: Any) -> Any:
        if target.name == "orders.deletes":
            raise Killed
        return done(self, target, *more)

    with monkeypatch.context() as patched:
        patched.setattr(ReplaySession, "commit", commit)
        with pytest.raises(Killed):
            one.replay()
    table = one.stream.catalog.load_table("orders.deletes")
    schema, spec = table.schema(), table.spec()
    one.stream.catalog.drop_table("orders.deletes")
    with pytest.raises(
        FrazilError, match=r"table orders\.deletes, which a dead letter's row is for, does not exist"
    ) as refused:
        one.replay()
    assert "frazil run payments" in str(refused.value.fix)
    one.stream.catalog.create_table("orders.deletes", schema, partition_spec=spec)
    one.replay()
    assert one.placed == PLACED
    one.no_record_is_left()


def test_a_correction_of_the_route_brings_home_what_no_table_took(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", records=RECORDS)
    one.replay()
    route = {"route": {"tables": [*ROUTE["tables"], {"match": "other", "table": "orders.deletes"}]}}
    done = one.replay({**LENIENT, **route})
    assert (done.replayed, done.failed_again) == (2, 0)
    assert one.placed == {**PLACED, "orders.deletes": [1, 2, 4, 6, 7, 9]}
    assert set(one.states.values()) == {"replayed"}
    one.audited()


def test_a_correction_cannot_route_to_a_table_that_is_none_of_the_stream(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    one.stream.catalog.create_table("orders.elsewhere", one.stream.table.schema())
    correction = {**LENIENT, "route": {"unmatched": {"table": "orders.elsewhere"}}}
    for ask in (one.dry_run, one.replay):
        with pytest.raises(FrazilError, match=r"names orders\.elsewhere, which is no table of the stream") as refused:
            ask(correction)
        assert "streams/payments.yaml" in str(refused.value.fix)


def test_what_the_route_drops_now_stays_a_letter(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", {**ROUTE, "unmatched": "drop"})
    assert one.dry_run().replayed == 8
    one.replay()
    assert one.placed == PLACED
    assert {at: each[0] for at, each in one.reasons.items()} == {4: "filtered", 9: "filtered"}
    assert "route drops the record now" in one.reasons[4][1]
    one.audited()


@pytest.mark.parametrize("unmatched", ["fail", {"table": SINK}, {"table": "orders.rest"}])
def test_what_no_table_takes_follows_the_file(tmp_path: Path, unmatched: Any) -> None:
    one = Letters(tmp_path / "home", {**ROUTE, "unmatched": unmatched})
    one.replay()
    if unmatched == "fail":
        assert one.placed == PLACED and one.states[4] == "failed_again"
    else:
        name = unmatched["table"]
        assert one.placed == {**PLACED, name: sorted([*PLACED.get(name, []), 4, 9])}
    one.audited()


def test_a_record_that_one_of_its_tables_cannot_hold_lands_in_none(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", records=[*RECORDS[:2], b'{"id": "x", "type": "UPD", "n": 3000000000, "note": 1}'])
    correction = {"decode": {"unknown_fields": "ignore", "schema": "id string not null, type string, n bigint"}}
    with pytest.raises(FrazilError, match="cannot hold what the correction declares"):
        one.replay(correction)
    with one.stream.catalog.load_table(SINK).update_schema() as change:
        change.update_column("n", LongType())
    # The stream's own table can hold it now, the others cannot.
    with pytest.raises(FrazilError, match=r"table orders\.\w+ cannot hold"):
        one.replay(correction)
    assert one.placed == {} and set(one.states.values()) == {"new"}


def test_tables_that_values_name_get_their_letters_and_one_that_is_not_there_waits_for_the_stream(
    tmp_path: Path,
) -> None:
    route = {"by": "type", "to": "orders.of_{value}"}
    one = Letters(tmp_path / "home", route)
    one.stream.land({"id": "b", "type": "INS", "n": 1}, {"id": "c", "type": "DEL", "n": 1}, batch=1)
    assert one.dry_run().replayed == 4
    done = one.replay()
    assert (done.replayed, done.failed_again) == (4, 6)
    assert one.placed == {"orders.of_INS": [0, 5, 10], "orders.of_DEL": [2, 7, 11]}
    reason, message = one.reasons[1]
    assert reason == "unrouted" and "--to-topic" in message
    assert not one.stream.catalog.table_exists("orders.of_UPD")
    one.audited()
    one.stream.land({"id": "d", "type": "UPD", "n": 1}, batch=2)
    assert one.replay().replayed == 2
    assert one.placed["orders.of_UPD"] == [1, 6, 12]
    one.audited()


def test_rows_that_do_not_say_where_they_come_from_cannot_be_landed_by_a_route(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", table={"name": SINK, "kafka_columns": False})
    for ask in (one.dry_run, one.replay):
        with pytest.raises(FrazilError, match="no Kafka columns") as refused:
            ask()
        assert "--to-topic" in str(refused.value.fix)


def test_a_further_table_that_was_rolled_back_gets_its_rows_again_and_no_other_does(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    one.replay(selection=Selection(where="offset < 5"))
    table = one.stream.catalog.load_table("orders.deletes")
    before = table.metadata.snapshots[-2].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    assert one.placed.get("orders.deletes") is None
    with pytest.raises(RolledBackError, match=r"table orders\.deletes was rolled back") as refused:
        one.replay()
    assert "--after-rollback" in str(refused.value.fix)
    set_states_by_rows(load_stream(one.file), one.stream.settings, one.stream.catalog, "tester", "rolled back")
    assert set(one.states.values()) <= {"new", "failed_again"}
    one.replay()
    assert one.placed == PLACED
    assert [one.states[at] for at in range(10) if at % 5 != 4] == ["replayed"] * 8


STEPS = [
    "replay_after_claims",
    "replay_after_files",
    "replay_before_commit",
    "replay_between_tables",
    "replay_after_commit",
    "inside_life_change",
    "replay_after_life",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_and_run_again_each_record_is_in_each_table_once(tmp_path: Path, step: str) -> None:
    home = tmp_path / "home"
    one = Letters(home)
    correction = home / "patch.yaml"
    correction.write_text(yaml.safe_dump(LENIENT))
    command = ("--home", str(home), "replay", "payments", "--correction", str(correction))
    killed = Forked(frazil, *command, env={"FRAZIL_STEPS": f"{step}=kill"}, folder=home)
    assert killed.wait() == -9, killed.said()
    again = Forked(frazil, *command, env={"FRAZIL_STEPS": ""}, folder=home)
    again.wait()
    assert one.placed == PLACED, again.said()
    assert [one.states[at] for at in range(10) if at % 5 != 4] == ["replayed"] * 8
    one.audited()
    one.no_record_is_left()


def test_a_changed_route_that_would_bring_letters_home_proposes_their_replay(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    document = yaml.safe_load(one.file.read_text())
    document["decode"]["unknown_fields"] = "ignore"
    one.file.write_text(yaml.safe_dump(document))
    changed, catalog = load_stream(one.file), one.stream.catalog
    counted = tally_dead_letters(catalog.load_table(DEAD), "payments")
    (tried,) = propose_replay(changed, catalog, counted).reasons
    assert (tried.reason, tried.tried, tried.good) == ("unknown_field", 10, 8)
    document["table"]["kafka_columns"] = False
    one.file.write_text(yaml.safe_dump(document))
    assert propose_replay(load_stream(one.file), catalog, counted).reasons == ()
