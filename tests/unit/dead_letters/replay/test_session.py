"""The files of a replay's batch when its pending record cannot be written."""

from __future__ import annotations

import errno
import fnmatch
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import NotWrittenError
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.dead_letters.replay.opening import replay_session
from jobs.dead_letters.replay.replay_state import CHANGE_ARROW, replay_state_changes, update_replay_state
from jobs.dead_letters.replay.session import ReplayedPart
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.dead_letters import DeadLetterWorld


class FailingStore(LocalStore):
    """A store on a disk that takes no document of one kind."""

    def __init__(self, root: Path, refused: str, problem: OSError) -> None:
        super().__init__(root)
        self._refused: str = refused
        self._problem: OSError = problem

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        if fnmatch.fnmatch(key, self._refused):
            raise self._problem
        super().put(key, content, durable=durable)


@pytest.mark.parametrize(
    ("refused", "problem", "dropped"),
    [
        ("letters-*.parquet", NotWrittenError(errno.ENOSPC, "No space left on device"), True),
        ("letters-*.parquet", OSError(errno.EIO, "Input/output error"), True),
        ("pending-*.json", NotWrittenError(errno.ENOSPC, "No space left on device"), True),
        # Perhaps it is there: then the next replay drops them.
        ("pending-*.json", OSError(errno.EIO, "Input/output error"), False),
    ],
)
def test_files_that_no_pending_record_can_name_are_dropped(
    dead_letters: DeadLetterWorld, refused: str, problem: OSError, dropped: bool
) -> None:
    with replay_session(*dead_letters.given) as session:
        root = session.folder.root
        session.folder = StreamFolder(root, FailingStore(root, refused, problem))
        session.sink.read()
        table = session.sink.table
        writer = TargetWriter(table.metadata, table.io, file_prefix="replay")
        writer.write(pa.record_batch({"id": ["p-0"]}))
        files = writer.close()
        parts = {session.sink.name: ReplayedPart(tuple(files), session.sink.seen(), 1)}
        with pytest.raises(type(problem)):
            session.land("c", parts, CHANGE_ARROW.empty_table(), Counts(1, 1))
    assert [Path(file.file_path.removeprefix("file://")).exists() for file in files] == [not dropped]
    assert dead_letters.landed() == {}
    with replay_session(*dead_letters.given):
        assert dead_letters.landed() == {}


def test_a_letter_that_was_replayed_stays_so(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add(["good"])
    assert dead_letters.replay().replayed == 1
    (letters,) = dead_letters.dead().scan().to_arrow().combine_chunks().to_batches()
    with replay_session(*dead_letters.given) as session:
        session.letters.read()
        for state in ("failed_again", "dismissed", "replayed", "new"):
            changes = replay_state_changes(letters, keep=True, state=state, attempts=9)
            assert update_replay_state(session.letters, changes, epoch=session.epoch) == 0
    assert dead_letters.states() == {"replayed": 1}
