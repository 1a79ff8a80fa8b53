"""Process that merges into a stream's mirrors beside its driver, every `every`: `python -m jobs.mirrors.main`.

It has its own JVM while merges need Spark, so the stream never waits for a merge or shares memory with one. The driver
starts it. When the driver ends or is killed, this process's standard input ends, and so does the process. A merge that
is under way then is left as after a kill.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.system.threads import background_thread
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.spark.end import end_spark, spark_is_over
from jobs.clients.spark.session import start_session
from jobs.clients.spark.start import SessionOnDemand
from jobs.clients.state_store.lease import LeaseHeldError
from jobs.clients.state_store.mirror_problem import forget_problem, note_problem
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.documents.secrets import secrets_in
from jobs.config.redaction import RedactingFormatter, redacted
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.run.table_lock import TableBusyError
from jobs.mirrors.model.errors import KeylessChangelogError
from jobs.mirrors.run.merging import Merger
from jobs.mirrors.run.mirror_run import IncrementMerger, chosen_mirrors, run_mirror
from jobs.streaming.supervision.documents.launches import launched_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 300.0
# Enough to double the least possible `every` beyond the longest pause.
_MOST_DOUBLINGS = 10
_LEAST_PAUSE = 2.0
_PAUSE_SECONDS = 60.0
_LAST_MERGE_SECONDS = 8.0
_UNUSED_SECONDS = 600.0
"""Time without a merge that needs Spark after which its JVM ends."""
# Short, so that maintenance of one mirror does not delay the others.
WAIT_SECONDS = 10.0


@dataclass(slots=True)
class Due:
    """Time of a mirror's next merge.

    Attributes:
        at: Time on the monotonic clock.
        failures: Number of failures in a row.
    """

    at: float
    failures: int = 0

    def after(self, now: float, every: float, *, failed: bool) -> None:
        """Set the next time: `every` seconds from now, and longer after each failure in a row."""
        self.failures = self.failures + 1 if failed else 0
        longer = every * 2.0 ** min(self.failures, _MOST_DOUBLINGS)
        self.at = now + max(every, min(_LONGEST_PAUSE, longer))


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge until standard input ends; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jobs.mirrors.main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the deployment's folder")
    parser.add_argument("--settings", type=Path, help="the settings file, if it is not frazil.yaml in the home folder")
    parser.add_argument("--stream", required=True)
    given = parser.parse_args(arguments)
    settings = load_settings(given.settings, home=given.home)
    spec = load_stream(launched_file(stream_folder(settings, given.stream)))
    _log_to_output(settings, spec)
    ending = threading.Event()
    background_thread(_await_end, "driver", ending)
    session = SessionOnDemand(lambda: _session(settings, spec), is_gone=spark_is_over)
    try:
        merger = IncrementMerger(settings, session.get)
        merge_while(spec, settings, merger, ending, pause=lambda: _end_unused(session))
    finally:
        end_spark()
    return 0


def merge_while(
    spec: StreamSpec,
    settings: Settings,
    merger: Merger,
    ending: threading.Event,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[], object] = lambda: None,
) -> None:
    """Merge into each mirror when it is due, until `ending` is set; failures are recorded and tried again.

    Args:
        pause: Called each minute while nothing is due.
    """
    due: dict[str, Due] = {}
    keyless: set[str] = set()
    while not ending.is_set():
        try:
            with translate_errors(settings, spec.stream), connect_catalog(settings) as catalog:
                chosen = chosen_mirrors(spec, catalog)
                for of, mirror in chosen:
                    if mirror.every is None:
                        continue
                    at = due.setdefault(mirror.table, Due(0.0))
                    if clock() < at.at or ending.is_set():
                        continue
                    began = clock()
                    merged = _merge(of, mirror, settings, catalog, merger, keyless if len(chosen) > 1 else None)
                    # A merge is due `every` after the last one began. After a failure or a wait, the pause begins now.
                    at.after(began if merged else clock(), mirror.every.total_seconds(), failed=merged is None)
        except FrazilError as problem:
            log.warning("mirrors of stream %s: %s", spec.stream, problem.message)
        left = max(_LEAST_PAUSE, min((each.at for each in due.values()), default=0.0) - clock())
        while left > 0 and not ending.is_set():
            pause()
            ending.wait(min(left, _PAUSE_SECONDS))
            left -= _PAUSE_SECONDS


def _merge(
    spec: StreamSpec,
    mirror: Mirror,
    settings: Settings,
    catalog: Catalog,
    merger: Merger,
    keyless: set[str] | None,
) -> bool | None:
    """Merge new changes into a mirror.

    Args:
        keyless: Mirrors whose changelog was reported to have no key. None if the stream has one mirror: a missing key
            is then an error.

    Returns:
        True if nothing is left to merge, False while another process has the mirror, None after an error.
    """
    try:
        # The changelog is created with its first records.
        if not catalog.table_exists(spec.table.name):
            return True
        with translate_errors(settings, spec.stream):
            done = run_mirror(spec, mirror, settings, catalog, merger, wait_seconds=WAIT_SECONDS)
    except (LeaseHeldError, TableBusyError) as held:
        # The other process merges these changes, or its maintenance ends.
        log.info("mirror %s: %s", mirror.table, held.message)
        return False
    except Exception as problem:
        if keyless is not None and isinstance(problem, KeylessChangelogError):
            # Some tables of a database have no key. `frazil mirror run` for all mirrors accepts that, too.
            if mirror.table not in keyless:
                log.info("mirror %s: %s", mirror.table, problem.message)
                keyless.add(mirror.table)
            forget_problem(settings, spec.stream, mirror.table)
            return True
        said = redacted(settings, problem.message if isinstance(problem, FrazilError) else f"{problem!r}")
        fix = problem.fix if isinstance(problem, FrazilError) else None
        log.warning("mirror %s: %s Next: %s", mirror.table, said, fix or f"frazil mirror run {spec.stream}")
        note_problem(settings, spec.stream, mirror.table, said, fix)
        return None
    if done.result is not None:
        log.info("mirror %s: %d changes merged, snapshot %d", mirror.table, done.result.counts.read, done.snapshot_id)
    return True


def _await_end(ending: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    ending.set()
    time.sleep(_LAST_MERGE_SECONDS)
    # A merge that takes longer is left as after a kill.
    os._exit(0)


def _end_unused(session: SessionOnDemand) -> None:
    if session.end_unused(_UNUSED_SECONDS):
        log.info("Spark has ended: no merge has needed it for %d minutes", _UNUSED_SECONDS // 60)


def _session(settings: Settings, spec: StreamSpec) -> SparkSession:
    resolve_jars("spark")
    conf = {"spark.ui.port": "0"}
    return start_session(settings, f"frazil mirrors of {spec.stream}", work="sql", conf=conf)


def _log_to_output(settings: Settings, spec: StreamSpec) -> None:
    """Send log lines to the driver's output, without secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter(settings, also=tuple(secrets_in(spec))))
    logging.getLogger().addHandler(handler)
    for own in ("jobs", "__main__"):
        logging.getLogger(own).setLevel(logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
