"""Maintenance benchmark, mending a table of small files while its stream goes on: `python -m bench.maintain`.

Makes the demo's table in a temporary folder with 100 small files in each of 30 days, as drivers do. Then a thread goes
on to land a batch a second in the two newest days, and what `frazil maintain` runs mends the table, with the default
policy and a Spark session of its own. What it prints is what the README quotes. Status 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.checksum import checksum
from bench.payment_batches import Payments, Stream
from bench.timed_target import TimedTarget, payments_spec
from jobs.base.system.signals import deferred_signals
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.config.settings.maintained_tables import maintained_table
from jobs.config.settings.settings import Settings
from jobs.maintenance.plan.results import StepProgress, TableResult
from jobs.maintenance.run.table_maintenance import maintain_table
from jobs.streaming.driver.opening.opening import ensure_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_GAIN = 0.9
SLOWEST_REBASE_SECONDS = 1.0
_HOT_DAYS = 2


def main() -> None:
    """Make the table, mend it beside the stream, print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30, help="partitions")
    parser.add_argument("--files", type=int, default=100, help="files in each of them")
    parser.add_argument("--rows", type=int, default=5_000, help="rows in each file")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two commits of the stream")
    parser.add_argument("--json", type=Path, help="also write the facts there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-maintain-") as folder:
        try:
            facts = once(Path(folder), arguments.days, arguments.files, arguments.rows, arguments.every)
        finally:
            end_spark()
    print(text(facts))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2))
    broken = [check for check, holds in facts["checks"].items() if not holds]
    for check in broken:
        print(f"does not hold: {check}", file=sys.stderr)
    sys.exit(bool(broken))


@dataclass(slots=True)
class Spark:
    """Starts Spark when it is first asked for, and knows how long that took and how many cores it has."""

    settings: Settings
    seconds: float = 0.0
    cores: int = 1
    session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self.session is None:
            began = time.monotonic()
            with deferred_signals():
                self.session = start_session(self.settings, "frazil maintain", work="sql")
            self.seconds = time.monotonic() - began
            self.cores = self.session.sparkContext.defaultParallelism
        return self.session


def once(home: Path, days: int, files: int, rows: int, every: float) -> dict[str, Any]:
    """The facts of one table, made and mended."""
    settings, spec = Settings.embedded(home), payments_spec()
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    partitions = [midnight - timedelta(days=n) for n in reversed(range(days))]
    hot = partitions[-_HOT_DAYS:]
    with connect_catalog(settings) as drivers, connect_catalog(settings) as ours:
        ensure_tables(spec, drivers)
        payments = Payments(TimedTarget(drivers, spec))
        payments.target.take_over()
        began = time.monotonic()
        for number in range(files):
            payments.land(partitions, rows)
            _tell(f"\r{(number + 1) * days:,} files in {time.monotonic() - began:.0f} s")
        _tell("\n")
        earlier = len(payments.target.seconds)
        small = dict(payments.landed)
        table = maintained_table(settings, [spec], spec.table.name)
        spark = Spark(settings)
        with Stream(payments, hot, max(1, rows // 50), every) as stream:
            stream.wait_for(3)
            result = maintain_table(ours, settings, table, spark=spark, specs=[spec], on_progress=_progress)
            streamed = payments.batches - files
            stream.wait_for(3)
        assert result.after is not None, "nothing was done"
        left = _files(ours.load_table(spec.table.name), result.after.snapshot_id)
        found = checksum(ours.load_table(spec.table.name).scan().to_arrow_batch_reader())
    target = payments.target
    facts = {
        "partitions": days,
        "small_files": len(small),
        "small_file_bytes": statistics.median(small.values()),
        "files_before": result.before.data_files,
        "files_after": len(left - (payments.landed.keys() - small.keys())),
        "files_after_with_the_streams": len(left),
        "manifests_before": result.before.manifests,
        "manifests_after": result.after.manifests,
        "bytes_rewritten": _of(result, "compact", "bytes"),
        "compact_s": _of(result, "compact", "seconds") - spark.seconds,
        "other_steps_s": {
            action: round(_of(result, action, "seconds"), 2)
            for action in dict.fromkeys(each.step.action for each in result.done)
            if action != "compact"
        },
        "whole_s": result.seconds - spark.seconds,
        "spark_start_s": spark.seconds,
        "cores": spark.cores,
        "steps": dict(Counter(each.step.action for each in result.done)),
        "errors": list(result.errors),
        "stream": {
            "batches_meanwhile": streamed,
            "batches_in_all": payments.batches - files,
            "batches_failed": int(stream.failed is not None),
            "problem": repr(stream.failed) if stream.failed else None,
            "tasks_run_again": target.ran_again,
            "commits_refused": target.refusals,
            "refusal_to_landing_ms": [round(1000 * each, 1) for each in target.rebased],
            "commit_median_ms": 1000 * statistics.median(target.seconds[earlier:] or [0.0]),
            "commit_slowest_ms": 1000 * max(target.seconds[earlier:], default=0.0),
        },
        "written": str(payments.written),
        "found": str(found),
    }
    return facts | {"checks": checks(facts)}


def checks(facts: dict[str, Any]) -> dict[str, bool]:
    """The conditions that have to hold, each with whether it does."""
    stream = facts["stream"]
    return {
        f"{LEAST_GAIN:.0%} of the files are removed": gain(facts) >= LEAST_GAIN,
        "every row exists once, with every value": facts["written"] == facts["found"],
        "no step failed": not facts["errors"],
        "no batch failed": not stream["batches_failed"],
        "no task ran again": not stream["tasks_run_again"],
        "the stream went on meanwhile": stream["batches_meanwhile"] > 0,
        "refused commits landed within a second": max(stream["refusal_to_landing_ms"], default=0.0)
        < 1000 * SLOWEST_REBASE_SECONDS,
    }


def gain(facts: dict[str, Any]) -> float:
    """The share of the files that were removed, without those that the stream added meanwhile."""
    return 1 - facts["files_after"] / facts["files_before"]


def text(facts: dict[str, Any]) -> str:
    """The facts in a few lines."""
    stream, seconds, size = facts["stream"], facts["compact_s"], facts["bytes_rewritten"]
    landings = ", ".join(f"{each:,.0f} ms" for each in stream["refusal_to_landing_ms"]) or "none"
    others = ", ".join(f"{action} {each:.1f} s" for action, each in facts["other_steps_s"].items()) or "none"
    return "\n".join(
        [
            f"{facts['files_before']:,} files of {facts['small_file_bytes'] / 1024:,.0f} KiB in {facts['partitions']} "
            f"partitions became {facts['files_after']:,} ({-gain(facts):.1%}); with those that the stream landed "
            f"meanwhile {facts['files_after_with_the_streams']:,}; manifests {facts['manifests_before']:,} → "
            f"{facts['manifests_after']:,}",
            f"{size / 1e6:,.0f} MB rewritten in {seconds:.1f} s: {size / 1e6 / seconds:,.1f} MB/s, "
            f"{size / 1e6 / seconds / facts['cores']:,.1f} MB/s for each of {facts['cores']} cores; other steps: "
            f"{others}; all in all {facts['whole_s']:.1f} s, and {facts['spark_start_s']:.1f} s for Spark's start",
            f"rows and checksum: {facts['written']} written, {facts['found']} found",
            f"the stream: {stream['batches_meanwhile']:,} batches meanwhile, {stream['batches_failed']} failed, "
            f"{stream['tasks_run_again']} with tasks run again, {stream['commits_refused']} commits refused "
            f"(from refusal to landing: {landings}); a commit took {stream['commit_median_ms']:.0f} ms (median), "
            f"{stream['commit_slowest_ms']:.0f} ms (slowest)",
        ]
    )


def _of(result: TableResult, action: str, what: str) -> float:
    return sum(getattr(each, what) for each in result.done if each.step.action == action)


def _files(table: Any, snapshot_id: int | None) -> set[str]:
    return {task.file.file_path for task in table.scan(snapshot_id=snapshot_id).plan_files()}


def _progress(progress: StepProgress) -> None:
    if progress.result is not None:
        _tell(f"\r{progress.step.action}: step {progress.number} of {progress.total} ended   ")
        if progress.number == progress.total:
            _tell("\n")


def _tell(message: str) -> None:
    print(message, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
