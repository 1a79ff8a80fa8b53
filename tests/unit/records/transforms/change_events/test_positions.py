"""Positions of changes: texts of one width that sort as the source orders its changes, whatever it sends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.transforms.change_events.debezium_events import SourceBlock
from jobs.records.transforms.change_events.flat_rows import order_positions
from jobs.records.transforms.change_events.positions import source_positions
from tests.unit.records.transforms.change_events.streams import (
    DATA,
    fates,
    key_of,
    landed,
    stream,
)
from tests.unit.records.transforms.rows import rows_of

LSN = st.integers(0, 2**63 - 1)
WORD = st.integers(0, 2**32 - 1)


def positions(sources: Sequence[dict[str, Any] | None], reads: Sequence[bool] = ()) -> list[str | None]:
    """Of a part of a longer array, as blocks are."""
    values = pa.array([sources[0], *sources])[1:]
    found = source_positions(SourceBlock(values, np.array(reads or [False] * len(sources), bool)))
    assert [each is None for each in found.texts.to_pylist()] == [each is None for each in found.lineages.to_pylist()]
    return found.texts.to_pylist()


def in_order(texts: Sequence[str | None], keys: Sequence[Any]) -> None:
    """Text is as keys are: of one width, equal where they are, and sorted as they."""
    assert len({len(each) for each in texts if each is not None}) <= 1
    for one, first in zip(texts, keys, strict=True):
        for other, second in zip(texts, keys, strict=True):
            assert one is not None
            assert other is not None
            assert (one < other, one == other) == (first < second, first == second)


@given(st.lists(st.tuples(LSN | st.none(), LSN, st.booleans()), min_size=1, max_size=6))
def test_postgresql(places: list[tuple[int | None, int, bool]]) -> None:
    sequences = [json.dumps([None if commit is None else str(commit), str(lsn)]) for commit, lsn, _ in places]
    sources = [{"connector": "postgresql", "name": "n", "db": "d", "sequence": each} for each in sequences]
    reads = [each[2] for each in places]
    keys = [((0 if read else 1) if commit is None else commit, lsn) for commit, lsn, read in places]
    in_order(positions(sources, reads), keys)


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
@given(places=st.lists(st.tuples(st.integers(0, 999_999_999), LSN, st.integers(0, 2**31 - 1)), min_size=1, max_size=6))
def test_binlogs(connector: str, places: list[tuple[int, int, int]]) -> None:
    sources = [
        {"connector": connector, "name": "n", "server_id": 7, "file": f"bin.log.{file:06d}", "pos": pos, "row": row}
        for file, pos, row in places
    ]
    in_order(positions(sources), places)


def groups(*widths: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(0, 16**width - 1) for width in widths))


@pytest.mark.parametrize(("connector", "widths"), [("sqlserver", (8, 8, 4)), ("db2", (8, 8, 8, 8))])
@given(data=st.data())
def test_log_numbers(connector: str, widths: tuple[int, ...], data: st.DataObject) -> None:
    change = st.tuples(groups(*widths), groups(*widths), st.integers(0, 2**40))
    places = data.draw(st.lists(change, min_size=1, max_size=6))

    def text(parts: tuple[int, ...]) -> str:
        written = ":".join(f"{each:0{width}x}" for each, width in zip(parts, widths, strict=True))
        return written.upper() if data.draw(st.booleans()) else written

    of = {"connector": connector, "name": "n", "db": "d"}
    sources = [
        of | {"commit_lsn": text(commit), "change_lsn": text(change), "event_serial_no": serial}
        for commit, change, serial in places
    ]
    # Within a transaction of SQL Server numbers do not ascend, and Kafka's order counts.
    in_order(positions(sources), [each[0] for each in places] if connector == "sqlserver" else places)


@given(st.lists(st.tuples(st.integers(0, 10**18 - 1), LSN, st.booleans()), min_size=1, max_size=6))
def test_oracle(places: list[tuple[int, int, bool]]) -> None:
    sources = [
        {"connector": "oracle", "name": "n", "db": "d", "commit_scn": None, "scn": str(commit)}
        if read
        else {"connector": "oracle", "name": "n", "db": "d", "commit_scn": str(commit), "scn": str(scn)}
        for commit, scn, read in places
    ]
    in_order(positions(sources, [each[2] for each in places]), [each[0] for each in places])


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.dates(), st.datetimes()), min_size=1, max_size=6))
def test_columns(places: list[tuple[Any, ...]]) -> None:
    rows = rows_of("n long, d date, t timestamp", [dict(zip("ndt", each, strict=True)) for each in places])
    texts, _, failures = order_positions(rows, ["n", "d", "t"], np.zeros(rows.count, bool))
    assert texts is not None
    assert not failures
    in_order(texts.to_pylist(), places)


MYSQL = {"connector": "mysql", "name": "n", "server_id": 1, "file": "bin.000001", "pos": 4, "row": 0}
POSTGRES = {"connector": "postgresql", "name": "n", "db": "d", "sequence": '["1","2"]'}


@pytest.mark.parametrize(
    ("source", "lacking"),
    [
        (POSTGRES | {"sequence": '["1",null]'}, True),
        (POSTGRES | {"sequence": "1,2"}, True),
        # Before release 1.5 there was none, and then none of its changes has a position.
        (POSTGRES | {"sequence": None}, False),
        (MYSQL | {"file": "bin"}, True),
        (MYSQL | {"pos": None}, True),
        (MYSQL | {"pos": -8190}, True),
        ({"connector": "sqlserver", "name": "n", "db": "d", "commit_lsn": "1:2", "change_lsn": None}, True),
        ({"connector": "sqlserver", "name": "n", "db": "d", "commit_lsn": "00000027:00000758:0005"}, False),
        ({"connector": "db2", "name": "n", "db": "d", "commit_lsn": "00000027:00000758:00000000:00000005"}, True),
        ({"connector": "oracle", "name": "n", "db": "d", "commit_scn": None, "scn": "7"}, True),
        ({"connector": "oracle", "name": "n", "db": "d", "commit_scn": "x", "scn": "7"}, True),
        ({"connector": "oracle", "name": "n", "db": "d", "commit_scn": -1, "scn": 7}, True),
        # What nobody knows has no position, and needs none.
        ({"connector": "vitess", "name": "n", "vgtid": "…"}, False),
        ({"connector": "mongodb", "name": "n", "ord": 1, "ts_ms": 1000}, False),
        (None, False),
    ],
    ids=str,
)
def test_a_place_that_a_source_always_names_has_to_be_there(source: dict[str, Any] | None, lacking: bool) -> None:
    other = MYSQL if source is None or "file" in source else source
    values = pa.array([other, source])
    found = source_positions(SourceBlock(values, np.zeros(2, bool)))
    assert any(each[1] for each in found.lacking.values()) == lacking
    if lacking:
        read = source_positions(SourceBlock(values, np.ones(2, bool))).lacking
        assert not any(each[1] for each in read.values()) or "serial" in str(source)


def test_an_event_is_told_the_field_that_its_own_connector_lacks() -> None:
    postgresql, mysql = POSTGRES | {"sequence": "x"}, MYSQL | {"file": "bin"}
    sources = pa.array([mysql, postgresql, MYSQL, POSTGRES, MYSQL | {"pos": -8190}])
    found = source_positions(SourceBlock(sources, np.zeros(5, bool))).lacking
    told = {field: np.flatnonzero(lacking).tolist() for field, lacking in found.items()}
    assert told == {"sequence": [1], "file or source.pos": [0], "pos": [4]}


def test_connectors_beside_each_other_keep_their_lineages() -> None:
    values = pa.array([POSTGRES, MYSQL, None, MYSQL | {"server_id": 2}, {"connector": "vitess"}])
    found = source_positions(SourceBlock(values, np.zeros(5, bool)))
    assert found.texts.to_pylist() == [
        "0000000000000001/0000000000000002",
        "00000001/0000000000000004/00000000",
        None,
        "00000001/0000000000000004/00000000",
        None,
    ]
    assert found.lineages.to_pylist() == ["postgresql/n/d", "mysql/n/bin/1", None, "mysql/n/bin/2", None]


@pytest.mark.parametrize("source", [POSTGRES, MYSQL], ids=["postgresql", "mysql"])
def test_a_connector_is_known_by_its_fields_where_it_is_not_named(source: dict[str, Any]) -> None:
    unnamed = {name: each for name, each in source.items() if name != "connector"}
    assert positions([unnamed]) == positions([source])


def test_no_rows_have_no_positions() -> None:
    for each in (POSTGRES, MYSQL):
        values = pa.array([each])[:0]
        assert source_positions(SourceBlock(values, np.zeros(0, bool))).texts.to_pylist() == []


CONNECTORS = sorted(each.stem for each in DATA.glob("*.json"))


def cases(connector: str) -> dict[str, Any]:
    return json.loads((DATA / f"{connector}.json").read_text())


def plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("reference", [False, True], ids=["block", "reference"])
def test_each_record_becomes_what_the_connector_means(connector: str, reference: bool) -> None:
    said = cases(connector)
    key = key_of(said["key"]) if "key" in said else None
    found = fates(landed(stream(said["schema"], said["changes"], key), said["records"], reference=reference))
    for each, fate in zip(said["records"], found, strict=True):
        if "row" in each:
            assert isinstance(fate, dict), f"{each['what']}: {fate}"
            shown = {name: plain(fate[name]) for name in each["row"]}
            assert shown == each["row"], each["what"]
        else:
            assert isinstance(fate, str), f"{each['what']}: {fate}"
            assert fate.startswith(each["fate"]), each["what"]


def test_a_lineage_need_not_name_the_server_that_wrote() -> None:
    """As a mirror asks for where several servers write to one binlog."""
    schema = (
        "after struct<id: int>, op string, ts_ms long, "
        "source struct<connector: string, file: string, pos: long, server_id: long>"
    )
    source = {"connector": "mysql", "file": "b.000001", "pos": 4}
    values = [{"after": {"id": 1}, "op": "c", "source": {**source, "server_id": each}} for each in (0, 1, 223344)]
    step = {"compute": {"_change_lineage": "regexp_replace(_change_lineage, '/[0-9]*$', '')"}}
    found = fates(landed(stream(schema, "debezium", transform=[step]), [{"value": each} for each in values]))
    assert [row["_change_lineage"] for row in found] == ["mysql//b"] * 3
