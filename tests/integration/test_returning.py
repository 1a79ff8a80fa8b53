"""Letters that go back to a topic: each once, as they were, whatever is killed. No Spark takes part."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from jobs.base.errors import FrazilError
from jobs.base.failpoints import STEPS
from jobs.dead_letters.expiry.dead_letter_states import StateChange, change_dead_letters
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.return_to_topic import ReturnResult, return_letters_to_topic
from jobs.dead_letters.replay.run import replay
from jobs.records.formats.interface.decoder import Failure
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.forked import Forked, frazil
from tests.helpers.topics import create_topic, messages_of
from tests.integration.pipeline import Pipeline

pytestmark = pytest.mark.integration

SEEN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
STEPS_OF_IT = [name for name, each in STEPS.items() if each.kind == "return"]


class Returning:
    """A stream with letters, whose source topic is on the real broker."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline: Pipeline = pipeline
        self.topic: str = pipeline.stream
        ensure_tables(pipeline.spec(), pipeline.catalog())

    def add(self, *offsets: int, topic: str | None = None, seen: datetime = SEEN, value: bytes = b"\x00{") -> None:
        count = len(offsets)
        records = pa.record_batch(
            {
                "key": pa.array([b"k%d\xff" % offset for offset in offsets], pa.binary()),
                "value": pa.array([value + b"%d" % offset for offset in offsets], pa.binary()),
                "headers": pa.array([[{"key": "trace", "value": b"\x01"}, {"key": "trace", "value": None}]] * count),
                "topic": [topic or self.topic] * count,
                "partition": pa.array([offset % 2 for offset in offsets], pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array([SEEN + timedelta(milliseconds=o) for o in offsets], pa.timestamp("us", "UTC")),
            }
        )
        failures = [Failure(i, "decode_value", "wrong_type", "bad", "$.a") for i in range(count)]
        rows = dead_letter_rows(
            records, failures, stream=self.pipeline.stream, config_hash="c", batch_id=1, epoch=1, first_seen=seen
        )
        table = self.pipeline.dead_table()
        writer = TargetWriter(table.metadata, table.io, file_prefix="test")
        writer.write(rows)
        commit_once(table, Append(writer.close()), summary={}, properties={})

    def give_back(self, topic: str | None = None, **options: Any) -> ReturnResult:
        pipeline = self.pipeline
        request = ReplayRequest(options.pop("selection", Selection()), by="tester")
        spec, settings, catalog = pipeline.spec(), pipeline.settings(), pipeline.catalog()
        return return_letters_to_topic(spec, settings, catalog, topic or self.topic, request, **options)

    def command(self, steps: str) -> int:
        command = ("--home", str(self.pipeline.home), "replay", self.pipeline.stream, "--to-topic", self.topic)
        return Forked(frazil, *command, env={"FRAZIL_STEPS": steps}, folder=self.pipeline.home).wait()

    def came(self, topic: str | None = None) -> Counter[int]:
        """How often each letter's offset is in the topic, for a reader of what is committed."""
        found: Counter[int] = Counter()
        for message in messages_of(self.pipeline.address, topic or self.topic, {"isolation.level": "read_committed"}):
            headers: Any = message.headers() or []
            found[int(dict(headers)["__frazil.replay.offset"])] += 1
        return found

    def letters(self) -> dict[int, dict[str, Any]]:
        return {row["offset"]: row for row in self.pipeline.dead_table().scan().to_arrow().to_pylist()}

    def notes(self) -> list[str]:
        folder = self.pipeline.folder().root / "replay"
        return sorted(path.name for path in folder.glob("returning-*"))


@pytest.fixture
def back(pipeline: Callable[..., Pipeline]) -> Returning:
    return Returning(pipeline())


def test_letters_go_back_as_they_were_and_once(back: Returning) -> None:
    back.add(4, 7)
    # Two letters of one record.
    back.add(7, seen=SEEN + timedelta(days=1))
    back.add(8, topic="elsewhere")
    dry = back.give_back(dry_run=True)
    assert (dry.selected, dry.returned, dry.left) == (4, 2, {"of_another_topic": 1})
    assert back.came() == {}
    done = back.give_back()
    assert (done.selected, done.returned, done.left) == (4, 2, {"of_another_topic": 1})
    assert back.came() == {4: 1, 7: 1}
    (message,) = [each for each in messages_of(back.pipeline.address, back.topic, {}) if each.partition() == 0]
    assert (message.key(), message.value()) == (b"k4\xff", b"\x00{4")
    headers: Any = message.headers()
    assert headers == [
        ("trace", b"\x01"),
        ("trace", None),
        ("__frazil.replay.id", done.replay.encode()),
        ("__frazil.replay.stream", back.pipeline.stream.encode()),
        ("__frazil.replay.topic", back.topic.encode()),
        ("__frazil.replay.partition", b"0"),
        ("__frazil.replay.offset", b"4"),
        ("__frazil.replay.timestamp", b"1772359200004"),
        ("__frazil.replay.error_class", b"wrong_type"),
    ]
    letter = back.letters()[4]
    assert (letter["state"], letter["attempts"], letter["replay"]) == ("replayed", 1, done.replay)
    assert (letter["note"], letter["changed_by"]) == (f"returned to topic {back.topic}", "tester")
    assert letter["replay_snapshot_id"] is None
    assert back.letters()[8]["state"] is None
    assert back.give_back().returned == 0
    other = f"{back.topic}-other"
    create_topic(back.pipeline.address, other, 1)
    assert back.give_back(other).returned == 1
    assert back.came(other) == {8: 1}
    assert {letter["state"] for letter in back.letters().values()} == {"replayed"}
    assert back.notes() == []


@pytest.mark.parametrize("step", STEPS_OF_IT)
def test_killed_anywhere_each_letter_goes_back_once(back: Returning, step: str) -> None:
    back.add(*range(6))
    assert back.command(f"{step}=kill") == -signal.SIGKILL
    spec, settings, catalog = back.pipeline.spec(), back.pipeline.settings(), back.pipeline.catalog()
    # Until it is known what went back, nobody may take it for something else.
    with pytest.raises(FrazilError, match=f"--to-topic {back.topic}` was interrupted within a batch"):
        replay(spec, settings, catalog, ReplayRequest())
    with pytest.raises(FrazilError, match="was interrupted within a batch"):
        change_dead_letters(spec, settings, catalog, Selection(), StateChange("dismissed", "me", "no"))
    done = back.give_back()
    decided = step in ("return_after_commit", "return_after_life")
    assert (done.recovered, done.returned) == ((6, 0) if decided else (0, 6))
    assert back.came() == dict.fromkeys(range(6), 1)
    assert {letter["state"] for letter in back.letters().values()} == {"replayed"}
    assert {letter["attempts"] for letter in back.letters().values()} == {1}
    assert back.notes() == []
    assert back.give_back().returned == 0


def test_what_cannot_go_back_is_left_and_told(back: Returning) -> None:
    pipeline = back.pipeline
    back.add(1, 2, 3)
    table = pipeline.dead_table()
    rows = table.scan().to_arrow().to_pylist()
    rows[0] |= {"offset": 11, "masked": "field:card"}
    rows[1] |= {"offset": 12, "value": None}
    table.append(pa.Table.from_pylist(rows[:2], table.schema().as_arrow()))
    done = back.give_back()
    assert (done.returned, done.left) == (3, {"letter_masked": 1, "letter_unreadable": 1})
    states = {offset: letter["state"] for offset, letter in back.letters().items()}
    assert states == {1: "replayed", 2: "replayed", 3: "replayed", 11: None, 12: None}
    small = f"{back.topic}-small"
    create_topic(pipeline.address, small, 1, {"max.message.bytes": "2000"})
    back.add(20, value=b"x" * 3_000)
    with pytest.raises(FrazilError, match=r"takes 2000 bytes, and the dead letter of .* offset 20 has 3\d{3} with"):
        back.give_back(small)
    assert back.notes() == []
    with pytest.raises(FrazilError, match="topic nowhere does not exist"):
        back.give_back("nowhere")
