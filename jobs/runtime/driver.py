"""The former name of `python -m jobs.streaming.driver.main`, and nothing else.

An earlier release documented it for FRAZIL_DRIVER_COMMAND, so wrappers name it, and so does a keeper that was started
before an upgrade.
"""

from __future__ import annotations

import sys

from jobs.streaming.driver.main import main

if __name__ == "__main__":
    sys.exit(main())
