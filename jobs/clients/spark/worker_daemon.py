"""Daemon of Spark's Python workers, which has imported what the tasks import before it forks the first of them.

Spark starts `python -m jobs.clients.spark.worker_daemon pyspark.worker` where `spark.python.daemon.module` says so, and
it forks a worker for each core. With Spark's own daemon every worker imports everything by itself when its first task
begins: the same seconds of processor once per core, at the moment at which records wait.
"""

from __future__ import annotations

import gc
import importlib

from jobs.base.system.pandas_import import keep_pandas_out

TASKS = ("jobs.streaming.task.run", "jobs.clients.kafka.range_reader")
"""What the tasks of a batch import; those of a replay come on top when there is one."""


def main() -> None:
    """Import, then serve Spark until it closes this process's standard input."""
    keep_pandas_out()
    for name in TASKS:
        importlib.import_module(name)
    from pyspark import daemon

    # A collection in a worker would write to every page that it shares with the others.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
