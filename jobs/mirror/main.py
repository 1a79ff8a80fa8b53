"""Former name of `python -m jobs.mirrors.main`, and nothing else.

A driver that was started before an upgrade starts its merges by it.
"""

from __future__ import annotations

import sys

from jobs.mirrors.main import main

if __name__ == "__main__":
    sys.exit(main())
