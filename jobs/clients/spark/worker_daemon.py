"""Daemon of Spark's Python workers that imports the modules of tasks before it forks the first worker.

If `spark.python.daemon.module` names it, Spark starts `python -m jobs.clients.spark.worker_daemon pyspark.worker`, and
the daemon forks a worker for each core. With Spark's own daemon, every worker imports all modules when its first task
begins: seconds of CPU for each core while records wait.
"""

from __future__ import annotations

import gc
import importlib

from jobs.base.system.pandas_import import keep_pandas_out

TASKS = ("jobs.streaming.task.run", "jobs.clients.kafka.range_reader")
"""Modules that the tasks of a batch import; tasks of a replay import more when they run."""


def main() -> None:
    """Import, then serve Spark until it closes this process's standard input."""
    keep_pandas_out()
    for name in TASKS:
        importlib.import_module(name)
    from pyspark import daemon

    # A garbage collection in a worker would write to every page that it shares with other workers.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
