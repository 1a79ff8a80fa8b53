"""What all tests share."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers.dagster_state import own_dagster_state

# Each is started by the first test that asks for it.
pytest_plugins = ["tests.helpers.services"]

# Hypothesis judges what is found, not how long a busy machine took to find it.
settings.register_profile("frazil", deadline=None, print_blob=True)
settings.load_profile("frazil")

# What `make test` asks for with -m, and the folder that holds none of it.
WITHOUT = {"integration": "unit", "not integration": "integration"}

# A script's `&` lets Ctrl-C be ignored by whatever is started in it. Dagster takes SIGTERM for Ctrl-C, and would let it
# be ignored as well, by whatever a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a folder of which nothing is asked for: to import it takes seconds, in each process of a run."""
    folder = WITHOUT.get(config.option.markexpr)
    return True if folder and collection_path == Path(__file__).parent / folder else None


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what the imports of all tests have made, which stays to the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Reap the drivers that tests have started and ended; Python complains of those that nobody waited for."""
    if launcher := sys.modules.get("jobs.supervise.launcher"):
        launcher.reap_drivers()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how to have the tests in this order again."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None and config.getoption("randomly_reorganize", False):
        terminalreporter.write_line(f"in random order; the same again: PYTEST_ARGS=--randomly-seed={seed}")


@pytest.fixture(autouse=True)
def dagster_state() -> Iterator[None]:
    """Let no test find what another one left in Dagster's module state."""
    with own_dagster_state():
        yield
