"""Former name of `python -m jobs.streaming.driver.main`, and nothing else.

Commands that replace the start of a driver (FRAZIL_DRIVER_COMMAND) name it.
"""

from __future__ import annotations

import sys

from jobs.streaming.driver.main import main

if __name__ == "__main__":
    sys.exit(main())
