"""Dispatch benchmark: what it costs to tell the rows of a routed stream apart, `python -m bench.dispatch [--rows N]`.

Prints milliseconds for a block of rows whose tables are told apart by values that repeat, that never do, and of
hundreds of tables, by name and by pattern. Decoding, fitting and writing are not in it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from jobs.config.stream.route import Route
from jobs.streaming.pipeline.route_dispatch import Dispatch

_MANY = 300
_CASES: list[tuple[str, list[Any], Callable[[random.Random], str]]] = [
    ("one value", ["a"], lambda _: "a"),
    ("three values", ["INS|UPD", ["DEL"]], lambda draw: draw.choice(["INS", "UPD", "DEL"])),
    ("300 tables by name", [f"t{n}" for n in range(_MANY)], lambda draw: f"t{draw.randrange(_MANY)}"),
    ("300 tables by pattern", [f"t{n}_.*" for n in range(_MANY)], lambda draw: f"t{draw.randrange(_MANY)}_x"),
    ("values that never repeat, two patterns", ["1.*", r"[2-5]\d*"], lambda draw: str(draw.randrange(10**9))),
    ("values that no table takes", ["x.*"], lambda draw: str(draw.randrange(10**9))),
]


def measure(matches: list[Any], draw: Callable[[random.Random], str], rows: int) -> float:
    """Milliseconds for a block, the best of three."""
    tables = [{"match": each, "table": f"a.t{number}"} for number, each in enumerate(matches)]
    dispatch = Dispatch(Route.model_validate({"by": "type", "tables": tables}))
    source, took = random.Random(1), []
    for _ in range(4):
        values = pa.array([draw(source) for _ in range(rows)])
        began = time.perf_counter()
        dispatch.rows_of(values)
        took.append(time.perf_counter() - began)
    return 1e3 * min(took[1:])


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    for name, matches, draw in _CASES:
        print(f"{name:40} {measure(matches, draw, rows):8.1f} ms for {rows:,} rows")


if __name__ == "__main__":
    main()
