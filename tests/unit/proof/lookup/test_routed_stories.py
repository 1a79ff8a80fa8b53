"""Reports about records of a stream with a route: each table that has them and no other, whatever the routes were."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.lookup.record_lookup import look_up_record
from jobs.proof.lookup.stored_rows import count_rows, rows_at
from jobs.proof.lookup.stream_tables import load_stream_tables
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream

KINDS = ["a", "b", "ab", "own", "none"]
_ENTRIES = {
    "orders.as": {"match": "a.*", "table": "orders.as"},
    "orders.bs": {"match": ".*b", "table": "orders.bs"},
    SINK: {"match": "own", "table": SINK},
}
Event = tuple[str, Any]

values = st.lists(st.sampled_from([*KINDS, "bad", "gone"]), min_size=1, max_size=4)
routes = st.sets(st.sampled_from(list(_ENTRIES)), min_size=1)
events = st.one_of(
    st.tuples(st.just("land"), values),
    st.tuples(st.just("route"), routes),
    st.tuples(st.just("fill"), st.none()),
    st.tuples(st.just("expire"), st.sampled_from(list(_ENTRIES))),
)
TOLD: list[Event] = [
    ("land", KINDS),
    ("route", {"orders.as"}),
    ("land", ["ab", "bad", "own", "gone"]),
    ("fill", None),
    ("expire", "orders.as"),
    ("expire", SINK),
    ("route", {SINK, "orders.bs"}),
    ("land", ["ab", "own", "a"]),
]


class Story:
    """A stream with a route that changes, and beside its tables where each record went."""

    def __init__(self, home: Path) -> None:
        self.home: Path = home
        self.truth: list[set[str]] = []
        self.epoch: int = 0
        self.batch: int = 0
        self.stream: RoutedStream | None = None
        self.route(set(_ENTRIES))

    def route(self, names: set[str]) -> None:
        before, self.epoch = self.stream, self.epoch + 1
        route = {"by": "type", "tables": [each for name, each in _ENTRIES.items() if name in names]}
        self.stream = RoutedStream(self.home, route, self.epoch)
        if before is not None:
            self.stream.log = before.log

    def land(self, kinds: list[str]) -> None:
        assert self.stream is not None and self.stream.spec.route is not None
        for kind in kinds:
            names = self.stream.spec.route.destinations(kind)
            self.truth.append(set() if kind == "gone" else {"dead"} if kind == "bad" or not names else set(names))
        first = len(self.stream.log)
        made = [
            b"{" if kind == "bad" else None if kind == "gone" else json.dumps({"id": f"p-{first + n}", "type": kind})
            for n, kind in enumerate(kinds)
        ]
        self.stream.log += [each.encode() if isinstance(each, str) else each for each in made]
        self.stream.land(batch=self.batch)
        self.batch += 1

    def fill(self, _: None) -> None:
        assert self.stream is not None
        fill_ledger(self.stream.catalog, self.stream.settings, [self.stream.spec])

    def expire(self, name: str) -> None:
        """Only what the ledger has: what had expired before is not known to anybody."""
        assert self.stream is not None
        self.fill(None)
        table = self.stream.catalog.load_table(name)
        old = [each.snapshot_id for each in table.snapshots()][:-1]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def judge(self) -> None:
        one = self.stream
        assert one is not None
        tables = load_stream_tables(one.spec, one.settings, one.catalog)
        for offset, truth in enumerate(self.truth):
            found = look_up_record(tables, one.at, offset)
            told = (offset, truth, found.fate, [each.table.target.name for each in found.places])
            expected = "tombstone" if not truth else "dead_letter" if truth == {"dead"} else "row"
            assert found.fate.fate == expected, told
            assert {each.table.target.name for each in found.places} == truth - {"dead"}, told
            for place in found.places:
                reading = place.commit.reading
                assert reading is not None and place.rows == 1, told
                assert count_rows(place.table, place.conditions, reading.snapshot_id) == 1, told
                records = rows_at(tables, place.table, f"id = 'p-{offset}'", 2)
                assert [(at, number) for at, number, _ in records] == [(one.at, offset)], told
        beyond = look_up_record(tables, one.at, len(self.truth))
        assert beyond.fate.fate in ("not_read", "never_read") and not beyond.places


@settings(max_examples=4, deadline=None)
@example(TOLD)
@given(st.lists(events, min_size=1, max_size=6))
def test_every_record_is_told_of_the_tables_that_have_it(story: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = Story(Path(folder) / "home")
        for name, argument in [*story, ("land", ["ab", "own"])]:
            getattr(told, name)(argument)
        told.judge()
