"""Changed keys: rows with the key of a change, against a dictionary."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.merge.small_merge.changed_keys import ChangedKeys

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-5, 5),
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 1, 2**40, 2**63 - 1]),
    pa.string(): st.sampled_from(["", "a", "b", "ab", "ü"]),
    pa.binary(): st.sampled_from([b"", b"\x00", b"\x00\x00"]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.integers(0, 4).map(lambda n: date(2026, 1, 1) + timedelta(n)),
    pa.timestamp("us", "UTC"): st.integers(0, 4).map(lambda n: BEGIN + timedelta(microseconds=n)),
    pa.decimal128(12, 2): st.integers(-3, 3).map(lambda n: Decimal(n).scaleb(-2)),
}


@given(st.data(), st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=4))
def test_it_finds_what_a_dictionary_finds(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    # Arrow takes a name that begins with a dot for a path, except where columns are told by their numbers.
    names = data.draw(st.permutations([".a", "a.b", "0", "frazil_row"]))[: len(kinds)]
    schema = pa.schema(zip(names, kinds, strict=True))
    keys = data.draw(st.lists(st.tuples(*(KINDS[kind] for kind in kinds)), min_size=1, max_size=12, unique=True))
    changed = ChangedKeys(_table(keys, schema))
    rows = data.draw(st.lists(st.tuples(*(st.none() | KINDS[kind] for kind in kinds)), max_size=20))
    there = {key: row for row, key in enumerate(keys)}
    met, changes = changed.met(_table(rows, schema).combine_chunks().to_batches()[0] if rows else _none(schema))
    expected = [(place, there[row]) for place, row in enumerate(rows) if row in there]
    assert [*zip(met.tolist(), changes.tolist(), strict=True)] == expected


def test_numbers_with_the_hash_of_a_key_are_not_taken_for_it() -> None:
    random = np.random.default_rng(1)
    keys = random.choice(1_000_000, 10_000, replace=False)
    rows = random.integers(0, 1_000_000, 200_000)
    batch = pa.RecordBatch.from_arrays([pa.array(rows, mask=rows % 7 == 0)], names=["id"])
    met, changes = ChangedKeys(pa.table({"id": keys})).met(batch)
    # Of the rows without a key, one in 400 has the hash of one.
    assert met.tolist() == np.flatnonzero(np.isin(rows, keys) & (rows % 7 != 0)).tolist()
    assert (keys[changes] == rows[met]).all()


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row[n] for row in rows], schema.types[n]) for n in range(len(schema))]
    return pa.table(columns, schema=schema)


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
