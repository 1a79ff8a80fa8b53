"""Changes of a small table that whatever merges them makes the same rows of."""

from __future__ import annotations

from tests.helpers.mirror_world import Row, change

SMALL = "id long, name string, note string"
"""Its columns; its key is `id`."""

CHANGES = [
    change("u", 10, id=1, name="one", unavailable=["note"]),
    change("d", 11, id=2),
    change("d", 12, id=3),
    change("c", 13, id=3, name="three"),
    change("c", 14, id=9, name="nine", note="9"),
    change("u", 15, id=9, name="neun", unavailable=["note"]),
    change("c", 16, id=10, name="gone"),
    change("d", 17, id=10),
]
"""Changes of the first six rows: three keys have another row behind them, and two have none."""

CHANGED_ROWS = {
    (0,): {"id": 0, "name": "n0", "note": "x"},
    (1,): {"id": 1, "name": "one", "note": "x"},
    (3,): {"id": 3, "name": "three", "note": None},
    (4,): {"id": 4, "name": "n4", "note": "x"},
    (5,): {"id": 5, "name": "n5", "note": "x"},
    (9,): {"id": 9, "name": "neun", "note": "9"},
}
"""The rows after these changes."""

REPEATS = [change("u", 18, 10, id=1, name="old", note="old"), change("d", 19, 16, id=4)]
"""Changes that were sent before those."""


def rows_of(count: int, first: int = 0) -> list[Row]:
    """Rows of a snapshot of the source, with keys from 0 on; the first stands in the log at `first`."""
    return [change("r", first + n, 0, id=n, name=f"n{n}", note="x") for n in range(count)]
