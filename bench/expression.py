"""Expression benchmark, engines for SQL over the columns of one row: `python -m bench.expression`.

Each engine runs in a process of its own, on the same block of payments: what its import and a first block take, and how
much memory they add to a process that decodes JSON; how long three expressions and a condition take for a block; and
what becomes of values at the edges. The engines are frazil's expressions on Arrow's kernels, DataFusion (which the Avro
decoder has), and DuckDB, if it is installed (`pip install duckdb`); frazil does not need it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from pyiceberg import types as ice

from jobs.base.system.pandas_import import keep_pandas_out
from jobs.records.formats.json import block  # noqa: F401

EXPRESSIONS = ("amount * 155", "date_trunc('day', created_at)", "upper(type) || '-' || payer")
CONDITION = "type <> 'test'"
EDGES = (
    "n + 1",
    "n * 2",
    "n = 9223372036854775806.0",
    "amount / 3",
    "amount * 1.1",
    "n / 0",
    "f / 0",
    "cast(1.5 as int)",
    "cast(f as decimal(12,2))",
    "cast(payer as int)",
)
"""Asked of one row: n is 2⁶³ - 1, amount 10.00, f 1.005, payer 'abc'."""
ENGINES = ("arrow", "datafusion", "duckdb")
_COLUMNS = [
    ice.NestedField(1, "n", ice.LongType()),
    ice.NestedField(2, "amount", ice.DecimalType(12, 2)),
    ice.NestedField(3, "f", ice.DoubleType()),
    ice.NestedField(4, "payer", ice.StringType()),
    ice.NestedField(5, "type", ice.StringType()),
    ice.NestedField(6, "created_at", ice.TimestamptzType()),
]
Evaluate = Callable[[str, pa.RecordBatch], object]


def main() -> None:
    """Measure every engine and print a table; with --engine one, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="in a block")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--engine", choices=ENGINES, help="measure this one in this process")
    arguments = parser.parse_args()
    if arguments.engine:
        print(json.dumps(measured(arguments.engine, arguments.rows, arguments.rounds)))
        return
    found = {engine: _in_a_process(engine, arguments) for engine in ENGINES}
    print(f"{'':28}" + "".join(f"{engine:>34}" for engine in found))
    for key in ("import and first block, ms", "memory, MB", "block, µs", *EDGES):
        print(f"{key:28}" + "".join(f"{str(each.get(key, 'not installed'))[:32]:>34}" for each in found.values()))


def _in_a_process(engine: str, arguments: argparse.Namespace) -> dict[str, object]:
    command = [sys.executable, "-m", "bench.expression", "--engine", engine]
    command += ["--rows", str(arguments.rows), "--rounds", str(arguments.rounds)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        if "ModuleNotFoundError" in ran.stderr:
            return {}
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout)


def measured(engine: str, rows: int, rounds: int) -> dict[str, object]:
    """Measured cost of one engine, and its results for values at the edges."""
    keep_pandas_out()
    batch, one = payments(rows), edge()
    before, start = _memory(), time.process_time()
    select, evaluate = {"arrow": _arrow, "datafusion": _datafusion, "duckdb": _duckdb}[engine]()
    select(batch)
    imported = time.process_time() - start
    took = []
    for _ in range(rounds):
        begin = time.process_time()
        select(batch)
        took.append(time.process_time() - begin)
    found: dict[str, object] = {
        "import and first block, ms": round(imported * 1000),
        "memory, MB": round(_memory() - before),
        "block, µs": round(statistics.median(took) * 1e6),
    }
    for each in EDGES:
        try:
            found[each] = str(evaluate(each, one))
        except Exception as problem:
            found[each] = f"fails: {str(problem).strip().splitlines()[0][-24:]}"
    return found


def payments(rows: int) -> pa.RecordBatch:
    """A block of payments; one in twenty is a test."""
    at = datetime(2026, 1, 31, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {
            "n": pa.array(range(rows), pa.int64()),
            "amount": pa.array([Decimal(row * 7 % 100_000) / 100 for row in range(rows)], pa.decimal128(12, 2)),
            "f": pa.array([row / 3 for row in range(rows)], pa.float64()),
            "payer": pa.array([f"payer-{row % 5_000}" for row in range(rows)]),
            "type": pa.array(["test" if row % 20 == 0 else "card" for row in range(rows)]),
            "created_at": pa.array([at + timedelta(seconds=row) for row in range(rows)], pa.timestamp("us", "UTC")),
        }
    )


def edge() -> pa.RecordBatch:
    """Batch with one row of values at the edges of their types."""
    values = [2**63 - 1, Decimal("10.00"), 1.005, "abc", "card", datetime(2026, 1, 31, tzinfo=UTC)]
    schema = payments(1).schema
    arrays = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _arrow() -> tuple[Callable[[pa.RecordBatch], object], Evaluate]:
    from jobs.records.expressions.expression import compile_condition, compile_expression

    compiled = [compile_expression(each, _COLUMNS) for each in EXPRESSIONS]
    condition = compile_condition(CONDITION, _COLUMNS)

    def select(batch: pa.RecordBatch) -> object:
        kept = batch.filter(condition.evaluate(batch).true())
        return [each.evaluate(kept).values for each in compiled]

    def evaluate(text: str, batch: pa.RecordBatch) -> object:
        found = compile_expression(text, _COLUMNS).evaluate(batch)
        return found.failures[0].message.partition(" fails")[2] if found.failures else found.values[0].as_py()

    return select, evaluate


def _datafusion() -> tuple[Callable[[pa.RecordBatch], object], Evaluate]:
    import datafusion

    def run(sql: str, batch: pa.RecordBatch) -> pa.Table:
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        context.register_record_batches("t", [[batch]])
        return context.sql(sql).to_arrow_table()

    return (
        lambda batch: run(f"select {', '.join(EXPRESSIONS)} from t where {CONDITION}", batch),
        lambda text, batch: run(f"select {text} as x from t", batch).column(0)[0].as_py(),
    )


def _duckdb() -> tuple[Callable[[pa.RecordBatch], object], Evaluate]:
    import duckdb  # pyright: ignore[reportMissingImports]

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("set TimeZone='UTC'; set enable_external_access=false; set lock_configuration=true")

    def run(sql: str, batch: pa.RecordBatch) -> pa.Table:
        connection.register("t", batch)
        return connection.sql(sql).to_arrow_table()

    return (
        lambda batch: run(f"select {', '.join(EXPRESSIONS)} from t where {CONDITION}", batch),
        lambda text, batch: run(f"select {text} as x from t", batch).column(0)[0].as_py(),
    )


if __name__ == "__main__":
    main()
