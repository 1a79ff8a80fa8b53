"""Contract benchmark, what ten expectations cost: `python -m bench.contract`.

Evaluates them on payments in a process of its own for each engine, imports included: by pandas on an Arrow table, and
by Spark with two cores on Parquet files of the same rows.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

ENTRIES: list[dict[str, Any]] = [
    {"expect_column_values_to_not_be_null": {"column": "id"}},
    {"expect_column_values_to_be_unique": {"column": "id"}},
    {"expect_column_values_to_be_between": {"column": "amount", "min_value": 0, "max_value": 900}},
    {"expect_column_values_to_be_in_set": {"column": "status", "value_set": ["OPEN", "PAID"]}},
    {"expect_column_values_to_match_regex": {"column": "payer", "regex": "^payer-[0-9]+$"}},
    {"expect_column_value_lengths_to_be_between": {"column": "payer", "max_value": 20}},
    {"expect_column_max_to_be_between": {"column": "created_at", "max_value": "2027-01-01T00:00:00Z"}},
    {"expect_column_mean_to_be_between": {"column": "amount", "min_value": 1, "max_value": 1000}},
    {"expect_column_values_to_not_be_null": {"column": "payer", "row_condition": 'col("status") == "PAID"'}},
    {"expect_table_row_count_to_be_between": {"min_value": 1}},
]


def payments(count: int, first: int = 0) -> Any:
    """Rows, of which one in a thousand has an amount that is too large."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = np.arange(first, first + count)
    cents = (numbers * 7919) % 90_000 + (numbers % 1000 == 0) * 100_000
    return pa.table({
        "id": pa.array(np.char.add("id-", numbers.astype("U12"))),
        "amount": pc.multiply(pa.array(cents).cast(pa.decimal128(19, 0)), Decimal("0.01")).cast(pa.decimal128(12, 2)),
        "status": pa.array(np.where(numbers % 3 == 0, "PAID", "OPEN")),
        "payer": pa.array(np.char.add("payer-", (numbers % 5000).astype("U12"))),
        "created_at": pa.array(numbers * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us", "UTC")),
        "_kafka_topic": pa.array(np.full(count, "payments")),
        "_kafka_partition": pa.array((numbers % 4).astype("int32")),
        "_kafka_offset": pa.array(numbers),
    })  # fmt: skip


def main() -> None:
    """Print seconds, seconds of processor and peak memory of each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pandas", type=int, default=100_000, help="rows; 0: not")
    parser.add_argument("--spark", type=int, default=10_000_000, help="rows; 0: not")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="frazil-contract-") as folder:
        for engine in ("pandas", "spark"):
            rows: int = getattr(arguments, engine)
            if not rows:
                continue
            write(Path(folder) / engine, rows)
            process = context.Process(target=run, args=(engine, Path(folder)))
            process.start()
            process.join()
            if process.exitcode:
                sys.exit(1)


def write(folder: Path, rows: int) -> None:
    """Files of at most a million rows."""
    import pyarrow.parquet as pq

    folder.mkdir()
    for first in range(0, rows, 1_000_000):
        pq.write_table(payments(min(1_000_000, rows - first), first), folder / f"{first}.parquet")


def run(engine: str, folder: Path) -> None:
    """Evaluate them, and print what it took."""
    began = time.monotonic()
    from jobs.contract.evaluation import EvaluationContext, evaluate
    from jobs.spec.contract import Expectation
    from jobs.spec.settings import Settings

    expectations = [Expectation.model_validate(entry) for entry in ENTRIES]
    context = EvaluationContext(coordinates=("_kafka_topic", "_kafka_partition", "_kafka_offset"))
    from jobs.spark.end import end_spark

    if engine == "pandas":
        import pyarrow.parquet as pq

        outcomes = evaluate(pq.read_table(folder / engine), expectations, context)
    else:
        from jobs.spark.session import start_session

        settings = Settings.embedded(folder)
        session = start_session(settings.model_copy(update={"spark": settings.spark}), "bench", work="sql")
        outcomes = evaluate(session.read.parquet(str(folder / engine)), expectations, context)
    seconds = time.monotonic() - began
    jvm = jvm_usage() if engine == "spark" else (0.0, 0)
    mine = resource.getrusage(resource.RUSAGE_SELF)
    failed = [outcome.name for outcome in outcomes if not outcome.passed]
    print(
        f"{engine}: {outcomes[0].elements:,} rows, {len(outcomes)} expectations, of which {failed} failed: "
        f"{seconds:.1f} s, {mine.ru_utime + mine.ru_stime + jvm[0]:.1f} s of processor, "
        f"{(mine.ru_maxrss + jvm[1]) / 1024:.0f} MB at most",
        flush=True,
    )
    if engine == "spark":
        end_spark()


def jvm_usage() -> tuple[float, int]:
    """Seconds of processor and kilobytes at most of this process's JVM."""
    import os

    ticks = os.sysconf("SC_CLK_TCK")
    used, peak = 0.0, 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) != os.getpid():
                continue
            used += (int(fields[11]) + int(fields[12])) / ticks
            status = (stat.parent / "status").read_text()
        except OSError:
            continue
        peak = max(peak, int(status.split("VmHWM:")[1].split()[0]))
    return used, peak


if __name__ == "__main__":
    main()
