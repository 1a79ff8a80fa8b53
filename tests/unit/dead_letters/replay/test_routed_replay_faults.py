"""Replays of a routed stream behind tables made anew, files that are gone, and answers that were cut short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.settings.loading import load_stream
from jobs.dead_letters.expiry import dead_letter_states
from jobs.dead_letters.expiry.dead_letter_states import set_states_by_rows
from jobs.dead_letters.replay import opening
from jobs.dead_letters.replay.session import ReplaySession, replay_folder
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.dead_letter_table.selection import Selection
from tests.unit.dead_letters.replay.test_routed_replay import (
    PLACED,
    SINK,
    Killed,
    Letters,
)


def make_anew(one: Letters, name: str) -> None:
    """Drop a table and make it again, as an operator's answer and the stream do."""
    table = one.stream.catalog.load_table(name)
    schema, spec, properties = table.schema(), table.spec(), table.properties
    kept = {key: value for key, value in properties.items() if "~replay" not in key}
    one.stream.catalog.drop_table(name)
    one.stream.catalog.create_table(name, schema, partition_spec=spec, properties=kept)


def by_rows(one: Letters) -> int:
    stream = one.stream
    return set_states_by_rows(load_stream(one.file), stream.settings, stream.catalog, "tester", "made anew")


@contextmanager
def killed_before(name: str) -> Iterator[None]:
    """A replay that is killed before it commits to a table."""
    done = ReplaySession.commit

    def commit(self: ReplaySession, target: Any, *more: Any) -> Any:
        if target.name == name:
            raise Killed
        return done(self, target, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplaySession, "commit", commit)
        with pytest.raises(Killed):
            yield


def whole(one: Letters) -> None:
    assert one.placed == PLACED
    assert [one.states[at] for at in range(10) if at % 5 != 4] == ["replayed"] * 8
    one.no_record_is_left()


def test_batches_behind_an_own_table_made_anew_reach_the_tables_that_are_older(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    one.replay(most=1, selection=Selection(where="offset < 5"))
    make_anew(one, SINK)
    assert by_rows(one) > 0
    one.replay(most=1)
    whole(one)


def test_a_record_of_another_own_table_deletes_no_file_that_a_table_has(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    with killed_before("orders.deletes"):
        one.replay()
    make_anew(one, SINK)
    one.replay()
    whole(one)


def test_a_file_of_a_record_that_is_gone_is_not_committed(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    with killed_before("orders.deletes"):
        one.replay()
    folder = replay_folder(one.stream.settings, "payments")
    content = folder.store.get(folder.pending_records()[0])
    assert content is not None
    catalog = one.stream.catalog
    pending = Pending.decode(content, {name: catalog.load_table(name).metadata for name in Pending.names(content)})
    for file in pending.targets["orders.deletes"].files:
        Path(file.file_path.removeprefix("file://")).unlink()
    one.replay()
    whole(one)
    one.audited()


def test_what_the_own_table_has_is_not_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshot says that it has the batch, so its letters are told whatever has become of its files."""
    one = Letters(tmp_path / "home")
    with killed_before("orders.deletes"):
        one.replay()
    asked: list[str] = []
    real = opening._may_take

    def noted(session: ReplaySession, name: str, part: PendingTarget) -> bool:
        asked.append(name)
        return real(session, name, part)

    monkeypatch.setattr(opening, "_may_take", noted)
    one.replay(None, selection=Selection(reasons=("none",)))
    assert sorted(asked) == ["orders.changes", "orders.deletes"]
    whole(one)


def test_files_that_a_table_cannot_take_any_more_go_only_with_their_record(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home")
    done, seen = ReplaySession.commit, list[bool]()

    def commit(self: ReplaySession, target: Any, part: Any, batch: Any) -> Any:
        if target.name == "orders.changes" and not seen:
            with one.stream.catalog.load_table(target.name).update_spec() as change:
                change.add_field("n", "bucket[4]", "by_n")
            seen.append(True)
        elif target.name == "orders.deletes" and len(seen) == 1:
            seen.append(True)
            raise Killed
        return done(self, target, part, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplaySession, "commit", commit)
        with pytest.raises(Killed):
            one.replay()
    assert len(seen) == 2
    # Back to what the files were written for, under the number that it had.
    with one.stream.catalog.load_table("orders.changes").update_spec() as change:
        change.remove_field("by_n")
    one.replay()
    whole(one)
    one.audited()


def test_an_answer_that_was_cut_short_behind_its_stamps_is_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Letters(tmp_path / "home")
    one.replay()
    table = one.stream.catalog.load_table("orders.deletes")
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[-2].snapshot_id).commit()

    def killed(*args: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(dead_letter_states, "reland_queue", killed)
        with pytest.raises(Killed):
            by_rows(one)
    assert by_rows(one) > 0
    one.replay()
    whole(one)


def test_a_table_that_a_value_names_and_that_is_gone_stops_the_replay_and_fails_no_letter(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", {"by": "type", "to": "orders.of_{value}"})
    one.stream.land({"id": "b", "type": "INS", "n": 1}, {"id": "c", "type": "DEL", "n": 1}, batch=1)
    one.stream.catalog.drop_table("orders.of_INS")
    for ask in (one.replay, one.dry_run):
        with pytest.raises(
            FrazilError, match=r"table orders\.of_INS, which a dead letter's row is for, does not exist"
        ):
            ask()
    assert set(one.states.values()) == {"new"} and not one.reasons
