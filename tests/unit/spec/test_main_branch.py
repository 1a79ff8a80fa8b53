"""Name of the branch that a table is read by, and what is imported without PyIceberg's tables because of it."""

from __future__ import annotations

import subprocess
import sys

from pyiceberg.table import refs

from jobs.spec.targets import MAIN_BRANCH

LOADS = """
import sys
import jobs.spec.generation, jobs.spec.loading
print(sorted(name for name in sys.modules if name.startswith(("pyiceberg.table", "pyiceberg.manifest"))))
"""


def test_it_is_icebergs() -> None:
    assert MAIN_BRANCH == refs.MAIN_BRANCH


def test_who_loads_a_streams_file_imports_nothing_that_reads_and_writes_tables() -> None:
    told = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
