"""Name of the branch that a table is read by, unless another one is asked for.

PyIceberg has it too, but with all that reads and writes tables, a quarter of what a command imports that only loads a
stream's file.
"""

from __future__ import annotations

MAIN_BRANCH = "main"
