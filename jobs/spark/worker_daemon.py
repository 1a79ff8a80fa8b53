"""Former name of `python -m jobs.clients.spark.worker_daemon`, and nothing else.

Spark of a driver that was started before an upgrade starts its Python workers by it.
"""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("jobs.clients.spark.worker_daemon", run_name="__main__", alter_sys=True)
