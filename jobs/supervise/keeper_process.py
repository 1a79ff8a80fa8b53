"""Former name of `python -m jobs.streaming.supervision.keeper.keeper_process`, and nothing else.

A driver that was started before an upgrade starts its keeper by it.
"""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("jobs.streaming.supervision.keeper.keeper_process", run_name="__main__", alter_sys=True)
