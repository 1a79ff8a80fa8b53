"""Former name of `python -m jobs.streaming.supervision.launchers.submitted_driver`, and nothing else.

A supervisor of an earlier release submits drivers to Spark by it.
"""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("jobs.streaming.supervision.launchers.submitted_driver", run_name="__main__", alter_sys=True)
