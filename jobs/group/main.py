"""Former name of `python -m jobs.streaming.groups.main`, and nothing else.

Commands that replace the start of a group's driver (FRAZIL_DRIVER_COMMAND) name it.
"""

from __future__ import annotations

import sys

from jobs.streaming.groups.main import main

if __name__ == "__main__":
    sys.exit(main())
