"""Former name of `python -m jobs.streaming.driver.main`, and nothing else.

The oldest one: FRAZIL_DRIVER_COMMAND of the first deployments names it.
"""

from __future__ import annotations

import sys

from jobs.streaming.driver.main import main

if __name__ == "__main__":
    sys.exit(main())
