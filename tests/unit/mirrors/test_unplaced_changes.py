"""Changes without a position in the source: Kafka's offsets order them, rows of snapshots among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyiceberg.types import LongType, NestedField, StructType

from jobs.config.settings.loading import load_stream
from jobs.mirrors.fold import order
from jobs.mirrors.fold.order import Order
from jobs.mirrors.fold.refold import CarriedPositions
from jobs.mirrors.model.errors import ScatteredChangesError
from jobs.mirrors.model.merge_plan import MirrorState
from jobs.mirrors.run.merging import merge_plan
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import MirrorWorld, Row, change
from tests.unit.mirrors.test_order import (
    P0,
    P1,
    at,
    kept,
    ordered,
)


def unplaced(op: str, offset: int, key: int | None = None, name: str | None = None, **more: Any) -> Row:
    return change(op, offset, id=key, name=name, **more) | {"_change_position": None, "_change_lineage": None}


BEFORE = [unplaced("c", 0, 1, "a"), unplaced("u", 1, 1, "b"), unplaced("c", 2, 2, "c"), unplaced("d", 3, 2)]
READ_ANEW = [unplaced("r", 4, 1, "new"), unplaced("r", 5, 2, "back")]


def names(world: MirrorWorld) -> dict[int, str]:
    return {key: row["name"] for (key,), row in world.rows().items()}


@pytest.mark.parametrize("merges", [1, 2])
def test_rows_that_are_read_anew_are_later_than_the_changes_before_them(tmp_path: Path, merges: int) -> None:
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    world.land(BEFORE)
    if merges == 2:
        world.merged(by="process")
        assert names(world) == {1: "b"}
    world.land(READ_ANEW)
    world.merged(by="process")
    assert names(world) == {1: "new", 2: "back"}
    world.land([unplaced("u", 6, 1, "later"), unplaced("d", 7, 2)])
    world.merged(by="process")
    assert names(world) == {1: "later"}


def test_a_truncate_leaves_the_rows_that_are_read_behind_it() -> None:
    logs = {P0: [at(0), at(1, op="r"), at(2, op="t"), at(3, op="r")]}
    found = ordered(MirrorState(), logs)
    assert kept(found, logs) == {P0: {3: "0000.-.1.0000000000000003"}}
    later = {P0: [at(4, op="r")]}
    assert kept(ordered(found.state, later), later)[P0].keys() == {4}


def test_a_row_without_a_position_of_its_own_is_later_than_the_change_before_it() -> None:
    """Of a source that has positions otherwise; with one of its own, a row is never later than a change there."""
    logs = {P0: [at(0, "5"), at(1, "5", op="r"), at(2, op="r"), at(3, "6")]}
    assert [*kept(ordered(MirrorState(), logs), logs)[P0].values()] == [
        "0000.5.1.0000000000000000",
        "0000.5.0.0000000000000001",
        "0000.5.1.0000000000000002",
        "0000.6.1.0000000000000003",
    ]


def test_a_row_read_behind_a_truncate_stays_when_its_key_is_folded_again() -> None:
    """Rows of an incremental snapshot may have no position, and the scan that knew the one before them is over."""
    log = [at(0, "5"), at(1, op="r"), at(2, "6", op="t"), at(3, op="r"), at(4, "7")]
    state = ordered(MirrorState(), {P0: log}).state
    assert [*kept(Order(state, {}), {P0: log})[P0]] == [3, 4]
    # Of several partitions offsets say nothing.
    both = ordered(MirrorState(), {P0: log, P1: [at(0, "5")]}).state
    assert [*kept(Order(both, {}), {P0: log})[P0]] == [4]
    # A timeline behind that of the truncate.
    behind = [*log, at(5, "1", "b"), at(6, op="r")]
    state = ordered(MirrorState(), {P0: behind}).state
    assert [*kept(Order(state, {}), {P0: behind})[P0]] == [3, 4, 5, 6]


def test_a_position_that_the_log_gave_stays_when_a_key_is_folded_again() -> None:
    logs = {P0: [at(0, "0005"), at(1, op="r")]}
    tokens = kept(ordered(MirrorState(), logs), logs)[P0]
    place = {"id": 1, "_change_topic": "shop", "_change_partition": 0}
    rows = pa.Table.from_pylist(
        [
            place
            | {"_change_offset": each.offset, "_change_position": each.position, "_change_order": tokens[each.offset]}
            for each in logs[P0]
        ]
    )
    assert CarriedPositions(("id",), needed=True)(rows)["_change_order"].to_pylist() == [*tokens.values()]


def test_a_mirror_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    """Its rows of snapshots have lower tokens than they would have today, and each later change is later than those."""
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    with pytest.MonkeyPatch.context() as patched:
        made: Callable[..., pa.Array] = order._tokens
        patched.setattr(order, "_tokens", lambda *given: made(*given[:4], np.ones(len(given[3]), bool)))
        world.land([unplaced("r", n, n, "read") for n in range(5)])
        world.merged(by="process")
        world.land([unplaced("u", 5, 1, "changed"), unplaced("r", 6, 1, "lost"), unplaced("d", 7, 4)])
        world.merged(by="process")
    tokens = {row["id"]: row["_change_order"] for row in world.mirror.scan().to_arrow().to_pylist()}
    assert tokens == {n: f"0000.-.{int(n == 1)}.{5 if n == 1 else n:016x}" for n in range(4)}
    # All that comes now is later, whatever it is; what is read again of the changelog is as late as it was.
    world.land([unplaced("r", 8, 0, "n0"), unplaced("r", 9, 1, "n1"), unplaced("u", 10, 2, "n2"), unplaced("d", 11, 3)])
    world.land([unplaced("r", 12, 4, "n4")])
    files = world.files
    before = world.state
    world.merged(by="process")
    expected = {0: "n0", 1: "n1", 2: "n2", 4: "n4"}
    assert names(world) == expected
    assert world.merged(files=files, state=before, by="process").snapshots == ()
    assert names(world) == expected
    assert world.state.partitions[TopicPartition("shop", 0)].next_offset == 13


def test_changes_without_keys_and_positions_stop_the_mirror_at_the_second_partition(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, None, SMALL, ["id"], scattered=True)
    world.land([unplaced("u", 0, 1, "first")])
    world.merged(by="process")
    world.land([unplaced("u", 0, 1, "second", partition=2)])
    with pytest.raises(ScatteredChangesError, match=r"topic shop come from partitions 0, 2, and have neither keys"):
        world.merged(by="process")
    assert names(world) == {1: "first"}


@pytest.mark.parametrize("scattered", [False, True])
def test_one_partition_or_keys_or_positions_are_enough(tmp_path: Path, scattered: bool) -> None:
    one = [unplaced("u", 0, 1, "a"), unplaced("u", 1, 1, "b")]
    placed = [change("u", 0, 7, id=1, name="late"), change("u", 0, 8, id=1, name="b", partition=1)]
    keyed = [unplaced("u", 0, 1, "b"), unplaced("u", 0, 2, "c", partition=1)]
    logs: list[list[Row]] = [one, placed] if scattered else [one, placed, keyed]
    for number, log in enumerate(logs):
        world = MirrorWorld(tmp_path / str(number), None, SMALL, ["id"], scattered=scattered)
        world.land(log)
        world.merged(by="process")
        assert names(world)[1] == "b"


@pytest.mark.parametrize(
    ("changes", "keyed", "scattered"),
    [
        ({"envelope": "dms"}, True, False),
        ({"envelope": "dms"}, False, True),
        ({"envelope": "columns", "op": "op"}, False, True),
        ({"envelope": "columns", "op": "op", "order_by": "version"}, False, False),
    ],
)
def test_what_tells_whether_a_rows_changes_are_in_one_partition(
    tmp_path: Path, changes: dict[str, Any], keyed: bool, scattered: bool
) -> None:
    file = tmp_path / "streams" / "shop.yaml"
    file.parent.mkdir()
    decode: dict[str, Any] = {"value": "json", "schema": "id long, op string, version long"}
    if changes["envelope"] == "dms":
        decode["schema"] = "data struct<id: long>, metadata struct<operation: string, timestamp: string>"
    if keyed:
        decode["key"] = {"format": "json", "schema": "id long", "into": "_change_key"}
    mirrors = [{"table": "shop.customers", "key": ["id"]}]
    document = {"stream": "shop", "source": {"topics": ["shop"]}, "decode": decode, "changes": changes,
                "table": {"name": "shop.customers_changes"}, "mirrors": mirrors}  # fmt: skip
    file.write_text(yaml.safe_dump(document))
    spec = load_stream(file)
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    if keyed:
        with world.changelog.update_schema() as update:
            update.add_column("_change_key", StructType(NestedField(1, "id", LongType())))
    plan = merge_plan(spec, spec.mirrors[0], world.changelog, ("id",), MirrorState(), 0)
    assert plan.scattered is scattered
