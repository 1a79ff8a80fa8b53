"""Tables that a connector reads anew while it runs: positions of their rows begin anew, and the mirror asks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from jobs.mirrors.model.errors import RestoredSourceError
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import BEGIN, MirrorWorld, Row, change


def _placed(told: Row, commit: int, place: int, minutes: int) -> Row:
    """As Debezium's connector for PostgreSQL has positions: the last commit that it knows of, and the place."""
    return told | {"_change_position": f"{commit:016x}/{place:016x}", "_change_at": BEGIN + timedelta(minutes=minutes)}


def test_a_blocking_snapshot_is_told_apart_in_words_and_answered_alike(tmp_path: Path) -> None:
    """PostgreSQL's connector knows of no commit then, in the snapshot and behind it, until there is one."""
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    world.land([_placed(change("c", n, id=n, name="a"), 100, 100 + n, 0) for n in range(3)])
    world.merged(by="process")
    world.land(
        [
            _placed(change("u", 3, id=1, name="b"), 110, 111, 1),
            *[_placed(change("r", 4 + n, id=n, name="read"), 0, 120, 2) for n in range(3)],
            _placed(change("u", 7, id=2, name="first"), 1, 130, 3),
            _placed(change("d", 8, id=0), 135, 140, 4),
        ]
    )
    with pytest.raises(RestoredSourceError) as stopped:
        world.merged(by="process")
    assert "If it is a row of a snapshot, the connector may only have read the table again" in str(stopped.value)
    assert stopped.value.fix == "frazil mirror accept shop --new-generation --at shop:0:4"
    world.state = world.state.accepted(stopped.value.breaks)
    world.merged(by="process")
    assert {key: row["name"] for (key,), row in world.rows().items()} == {1: "read", 2: "first"}
