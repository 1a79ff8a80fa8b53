"""Former name of `python -m jobs.clients.install.artifacts`, and nothing else.

Images of earlier releases are built with it.
"""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("jobs.clients.install.artifacts", run_name="__main__", alter_sys=True)
