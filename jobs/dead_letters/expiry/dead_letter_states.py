"""States of dead letters set by an operator: dismissed, new again, or by the rows after a rollback or a loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import stream_lease
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.connect_queue.opening import reland_queue
from jobs.dead_letters.replay.landed import already_landed
from jobs.dead_letters.replay.opening import replay_session
from jobs.dead_letters.replay.pending_return import is_returned
from jobs.dead_letters.replay.replay_state import replay_state_changes, update_replay_state
from jobs.dead_letters.replay.request import MAX_BYTES, MAX_LETTERS
from jobs.dead_letters.replay.session import BATCHES, replay_id
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import pointwise_max
from jobs.tables.dead_letter_table.reader import UnreadableDeadLettersError, dead_letter_batches
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.table import STATES


@dataclass(frozen=True, slots=True)
class StateChange:
    """A person's decision about the state of dead letters.

    Attributes:
        state: New state: `dismissed`, or `new` with no attempt counted.
        by: Author.
        note: Reason.
    """

    state: Literal["dismissed", "new"]
    by: str
    note: str


def change_dead_letters(
    spec: StreamSpec, settings: Settings, catalog: Catalog, selection: Selection, change: StateChange
) -> int:
    """Set the state of the selected dead letters; replayed ones stay replayed.

    Returns:
        Number of changed dead letters.

    Raises:
        LeaseHeldError: A replay of the stream is running.
        UnreadableDeadLettersError: A data file with some of them cannot be read.
    """
    with replay_session(spec, settings, catalog) as session:
        session.letters.read()
        changed = 0
        for letters in _letters(session.letters, spec.stream, selection):
            changed += update_replay_state(session.letters, _changes(letters, change), epoch=session.epoch)
        return changed


def settle_lost_replay(spec: StreamSpec, settings: Settings, catalog: Catalog, note: str) -> int:
    """Let replays go on after a record was lost and an operator has handled its dead letters; returns 0."""
    with replay_session(spec, settings, catalog, recover=False) as session:
        session.settle_lost()
    return 0


def set_states_by_rows(spec: StreamSpec, settings: Settings, catalog: Catalog, by: str, note: str) -> int:
    """Set the state of all dead letters by the stream's tables, after one of these tables was rolled back.

    A replayed dead letter without its row becomes new, unless it went back to a topic; one with its row becomes
    replayed. With a route, every replayed dead letter becomes new, unless it went back to a topic, as it may lack a
    single table. The next replay lands missing rows, and no existing one.

    Returns:
        Number of changed dead letters.

    Raises:
        FrazilError: The table's rows lack coordinates.
    """
    name, spec = replay_id(spec.stream), with_named_tables(spec, catalog)
    parked = parked_tables(spec, catalog)
    names = (
        [each for each in spec.target_names if each not in parked]
        if spec.route
        else (spec.table.name, spec.dead_letter_table)
    )
    targets = [Target(catalog, table, name, branch=spec.branch_of(table)) for table in names]
    of_rows = [each for each in targets if each.name != spec.dead_letter_table]
    kafka = spec.kafka_columns
    for each in of_rows:
        if not kafka.locate_rows_of(each.table.schema()):
            raise FrazilError(
                f"stream {spec.stream}: table {each.name} has no Kafka columns to tell which dead letters have landed.",
                fix=f"`frazil letters {spec.stream} --dismiss WHY` or `--restore WHY` for these dead letters",
            )
    _stand_again(spec, settings, targets)
    reland_queue(spec, settings, catalog, f"{by}: {note}")
    with replay_session(spec, settings, catalog) as session:
        session.letters.read()
        changed = 0
        for batch in _letters(session.letters, spec.stream, Selection(states=STATES)):
            if spec.route:
                # The next replay finds out in which tables its rows belong.
                there = np.zeros(batch.num_rows, dtype=bool)
            else:
                masks = [already_landed(each.table, batch, columns=kafka.instant_coordinates) for each in of_rows]
                there = np.logical_or.reduce(masks)
            known = np.array([state == "replayed" for state in batch.column("state").to_pylist()], dtype=bool)
            # A record that went back to a topic has no row to look for.
            gone = np.array([is_returned(note) for note in batch.column("note").to_pylist()], dtype=bool)
            back = batch.filter(pa.array(known & ~there & ~gone))
            come = batch.filter(pa.array(~known & there))
            changed += update_replay_state(
                session.letters, _changes(back, StateChange("new", by, note)), epoch=session.epoch, undo=True
            )
            changed += update_replay_state(
                session.letters, _changes(come, StateChange("new", by, note), "replayed"), epoch=session.epoch
            )
        return changed


def _stand_again(spec: StreamSpec, settings: Settings, targets: Sequence[Target]) -> None:
    """Stamp the tables with their positions before the rollback, so that no batch number is used twice."""
    name = replay_id(spec.stream)
    by_name = {target.name: target for target in targets}
    session = CommitSession(name, spec.config_hash, stream_lease(settings, name), by_name)
    with session.held():
        pasts = [target.history() for target in targets]
        stands = pointwise_max(past.newest.position for past in pasts if past.newest)
        at = {BATCHES: stands.get(BATCHES, 0)}
        for target, past in zip(targets, pasts, strict=True):
            if past.rolled_back and past.newest is not None:
                target.restamp(replace(session.claim_of(past.newest), start=at, position=at))


def _letters(target: Target, stream: str, selection: Selection) -> Iterator[pa.RecordBatch]:
    def unreadable(problem: UnreadableDeadLettersError, rows: int) -> None:
        raise problem

    return dead_letter_batches(
        target.table, stream, selection, most=MAX_LETTERS, most_bytes=MAX_BYTES, on_unreadable=unreadable
    )


def _changes(letters: pa.RecordBatch, change: StateChange, state: str | None = None) -> pa.Table:
    """Replay state of dead letters after a decision: replays' fields stay, except the attempts of new ones."""
    state = state or change.state
    anew = {"attempts": 0, "replay_snapshot_id": None} if state == "new" else {}
    return replay_state_changes(letters, keep=True, state=state, changed_by=change.by, note=change.note, **anew)
