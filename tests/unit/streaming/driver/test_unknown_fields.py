"""Keys that are not declared: added up in tasks, over batches and over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.stream.event_time import Slo
from jobs.streaming.driver.context.progress import MOST_UNKNOWN_FIELDS, WorkLog
from jobs.streaming.driver.context.results import BatchDone, TaskResults
from jobs.streaming.driver.context.unknown_fields import (
    MOST_FIELDS,
    UnknownField,
    UnknownFields,
    UnknownFieldsRecord,
    read_unknown_fields,
)
from jobs.streaming.task.tally import MOST_UNKNOWN
from jobs.tables.commit.stamp.stamp_fields import Counts
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.tasks import TaskWorld, records, stream_spec

MET = {"$.x": UnknownField(3, "t", 1, 17, "$", "x long")}


def test_a_slice_tells_path_count_place_and_column(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id string not null, n int, items list<struct<sku: string>>"))
    good = [b'{"id": "a", "n": %d, "items": [{"sku": "s", "q": 1.5}]}' % i for i in range(600)]
    renamed = [b'{"id": "a", "nn": %d}' % i for i in range(300)]
    bad = [b'{"nn": 1}'] * 5
    made = [world.run(records(part, first=at)) for part, at in ((good + bad, 0), (renamed, 1000))]
    fields = TaskResults({}, [tally for each in made for tally in each.tallies]).unknown_fields()
    assert fields == {
        "$.items[].q": UnknownField(600, "payments", 0, 0, "$.items[]", "q double"),
        "$.nn": UnknownField(300, "payments", 0, 1000, "$", "nn long"),
    }
    world.close()


def test_keys_without_end_do_not_make_a_tally_without_end(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id string not null"))
    values = [b'{"id": "a", "key-%d": 1}' % number for number in range(240)]
    blocks = [records(values[first : first + 80], first=first) for first in range(0, 240, 80)]
    blocks.append(records([b'{"id": "a", "%s": 1}' % (b"y" * 100_000)], first=1000))
    (tally,) = world.run(*blocks).tallies
    assert len(tally.unknown_fields) == MOST_UNKNOWN + 1
    assert sum(tally.unknown_fields.values()) == 241
    assert len(tally.unknown_examples) <= MOST_UNKNOWN
    assert max(len(path) for path in tally.unknown_fields) < 300
    known = UnknownFields("c", 0.0).plus(241, TaskResults({}, [tally]).unknown_fields())
    assert (len(known.fields), known.others) == (MOST_FIELDS, 141)
    world.close()


def test_the_note_goes_on_after_a_restart_and_begins_anew_with_another_configuration() -> None:
    store = InMemoryStore()
    note = UnknownFieldsRecord(store, "c1")
    note.add(100, {}, 5.0)
    assert read_unknown_fields(store, "c1") is None
    note.add(10, MET, 6.0)
    UnknownFieldsRecord(store, "c1").add(20, {"$.x": UnknownField(2), "$.y": UnknownField(1)}, 7.0)
    UnknownFieldsRecord(store, "c1").add(10, {"$.y": UnknownField(1, "t", 0, 9, "$", "y string")}, 8.0)
    known = read_unknown_fields(store, "c1")
    assert known is not None
    assert known == UnknownFields(
        "c1", 6.0, 40, {"$.x": MET["$.x"].plus(UnknownField(2)), "$.y": UnknownField(2, "t", 0, 9, "$", "y string")}
    )
    assert known.sentence("$.x") == "$.x in 12.5% of 40 records, such as topic t, partition 1, offset 17"
    assert known.advice("$.x", "payments") == (
        "add `x long` (the type is a guess) to decode.schema, or '$.x' to slo.unknown_fields in streams/payments.yaml"
    )
    assert read_unknown_fields(store, "c2") is None
    UnknownFieldsRecord(store, "c2").add(1, {"$.z": UnknownField(1)}, 9.0)
    assert read_unknown_fields(store, "c1") is None


def test_a_damaged_note_and_a_disk_that_refuses_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def full() -> None:
        raise OSError("no space left")

    store = InMemoryStore()
    store.put("unknown-fields.json", b"{")
    assert read_unknown_fields(store) is None
    store.before["put"] = full
    UnknownFieldsRecord(store, "c").add(1, MET, 0.0)
    assert "unknown-fields.json cannot be written: no space left" in caplog.text


@pytest.mark.parametrize(
    ("named", "path", "left_out"),
    [
        (("$.debug",), "$.debug", True),
        (("$.debug",), "$.debug.a", True),
        (("$.debug",), "$.debugger", False),
        (("$.items[].x",), "$.items[].x", True),
        (("$.items",), "$.items[].x", True),
        (("$.m",), "$.m{}.x", True),
        (("$",), "$.anything", True),
        ((), "$.x", False),
    ],
)
def test_what_is_left_out_on_purpose(named: tuple[str, ...], path: str, left_out: bool) -> None:
    slo = Slo.model_validate({"unknown_fields": list(named)})
    assert slo.leaves_out(path) is left_out
    known = UnknownFields("c", 0.0, 10, {path: UnknownField(1)})
    assert known.unexpected(slo) == ([] if left_out else [path])
    assert known.facts(slo)[0]["expected"] is left_out


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be the path of a key such as \$\.debug"):
        Slo.model_validate({"unknown_fields": ["debug"]})


def test_a_beat_has_a_bounded_number_of_them() -> None:
    log = WorkLog(0.0)
    for number in range(2):
        met = {f"$.{i}": UnknownField(2) for i in range(MOST_UNKNOWN_FIELDS + 9)}
        done = BatchDone(number, Counts(5, 5), 1.0, 1.0, 0.1, {}, None, unknown_fields=met)
        log.done(done, {}, 1.0, snapshot_id=1, dead_letter_snapshot_id=None, refusals=0)
    assert log.work(2.0).unknown_fields == {f"$.{i}": 4 for i in range(MOST_UNKNOWN_FIELDS)}
