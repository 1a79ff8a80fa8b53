from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.schema.decoded_columns import properties_in_parts
from jobs.tables.commit.protocol.target import stamp_properties
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_directory import TargetDirectory, directory_key

P0 = TopicPartition("t", 0)
NAMES = st.text("abc", min_size=1, max_size=3)


def stamp_of(tables: int, receiving: int) -> Stamp:
    names = [f"events.table_with_a_long_name_{number}" for number in range(tables)]
    return Stamp(
        *("s", "batch", 1, 1, "c", {P0: 0}, {P0: 9}),
        rows=dict.fromkeys(names[:receiving], 7) | dict.fromkeys(names[receiving:], 0),
        targets={name: f"uuid of {name}" for name in names},
    )


def committed(stamp: Stamp, table: dict[str, str]) -> str:
    """The stamp's text after its commit to a table of these properties."""
    text, properties = stamp_properties(stamp, table)
    table |= properties
    return text


@pytest.mark.parametrize("tables", [3, 8, 9, 300])
@pytest.mark.parametrize("receiving", [0, 1, 3])
def test_what_bitmaps_say_is_read_with_the_directory(tables: int, receiving: int) -> None:
    stamp, table = stamp_of(tables, receiving), {}
    read = Stamp.from_json(committed(stamp, table), table)
    assert read == replace(stamp, rows={name: 1 for name, rows in stamp.rows.items() if rows})


def test_a_stamp_does_not_grow_with_the_tables_names_and_its_directory_is_set_once() -> None:
    few, many, table = stamp_of(3, 3), stamp_of(300, 300), dict[str, str]()
    assert len(committed(many, table)) - len(committed(few, {})) < 120
    assert directory_key("s") not in stamp_properties(stamp_of(300, 5), table)[1]


def test_two_targets_are_named_as_ever() -> None:
    stamp, table = stamp_of(2, 1), dict[str, str]()
    text = committed(stamp, table)
    document = msgspec.json.decode(text)
    assert document["rows"] == stamp.rows and document["targets"] == stamp.targets
    assert list(table) == ["frazil.stamp.s"] and Stamp.from_json(text) == stamp


def test_old_bitmaps_stay_readable_when_tables_come_go_and_are_made_anew() -> None:
    table: dict[str, str] = {}
    first = stamp_of(5, 2)
    old = committed(first, table)
    name = next(iter(first.targets))
    anew = replace(first, targets={**first.targets, name: "another uuid", "events.more": "m"}, rows={name: 1})
    new = committed(anew, table)
    assert Stamp.from_json(old, table).targets == first.targets
    assert Stamp.from_json(new, table) == anew
    # A batch before that one target alone still lacks, of a table that the file names no more.
    former = committed(replace(anew, rows={"events.former": 3, name: 2}), table)
    assert Stamp.from_json(former, table).rows == {"events.former": 1, name: 1}


def test_a_table_recreated_each_day_takes_a_place_that_no_kept_stamp_uses() -> None:
    table, kept = dict[str, str](), list[str]()
    others = {f"events.other_{number}": f"u{number}" for number in range(3)}
    for day in range(40):
        stamp = replace(stamp_of(0, 0), targets={**others, "events.daily": f"day {day}"}, rows={"events.daily": 1})
        snapshots: list[Any] = [
            SimpleNamespace(summary=SimpleNamespace(additional_properties={"frazil.stamp": text})) for text in kept
        ]
        text, properties = stamp_properties(stamp, table, snapshots)
        table |= properties
        # The newest five snapshots are kept; each is read with the directory as it is now.
        kept = [*kept, text][-5:]
        uuids = [Stamp.from_json(each, table).targets["events.daily"] for each in kept]
        assert uuids == [f"day {each}" for each in range(max(0, day - 4), day + 1)]
    assert len(TargetDirectory.of(table, "s").entries) == 3 + 6


def test_a_directory_that_has_lost_entries_is_no_reason_to_forget_a_table() -> None:
    table: dict[str, str] = {}
    text = committed(stamp_of(9, 9), table)
    with pytest.raises(ValueError, match="target 8 of its stream"):
        Stamp.from_json(text, {directory_key("s"): stamp_of_entries(4)})
    with pytest.raises(ValueError, match="lists 0"):
        Stamp.from_json(text, {})
    assert Stamp.from_json(text).targets == {}, "whoever asks for neither needs no directory"


def stamp_of_entries(count: int) -> str:
    return TargetDirectory(tuple((f"t{number}", "u") for number in range(count))).to_json()


def test_a_directory_too_long_for_a_catalog_is_read_from_its_parts() -> None:
    table: dict[str, str] = {}
    text = committed(stamp_of(300, 4), table)
    assert len(table[directory_key("s")]) > 4_000
    assert Stamp.from_json(text, properties_in_parts(table, 4_000)) == Stamp.from_json(text, table)


@given(st.dictionaries(NAMES, NAMES, max_size=20), st.lists(st.dictionaries(NAMES, NAMES, max_size=20), max_size=4))
def test_a_bitmap_gives_back_its_tables(uuids: dict[str, str], later: list[dict[str, str]]) -> None:
    directory = TargetDirectory().with_targets(uuids, ())
    bitmap = directory.bitmap(uuids, uuids)
    for more in later:
        directory = directory.with_targets(more, ())
    assert directory.named(bitmap) == uuids
