"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.helpers.dagster_state import own_dagster_state

# Each is started by the first test that asks for it.
pytest_plugins = [
    "tests.helpers.services",
    "tests.helpers.shared_servers",
    "tests.helpers.certifying",
    "tests.helpers.tiers",
    "tests.helpers.fixed_parts",
]

# True in `make explore`, which searches with fresh seeds. All other runs draw the same input in the same order.
EXPLORING = bool(os.environ.get("FRAZIL_EXPLORE"))
# Share of the examples that a test asks for. `make test` draws the same ones in each run, so a third is enough there.
# `make explore` draws all of them, or many times as many.
EXAMPLES = float(os.environ.get("FRAZIL_EXAMPLES", "1" if EXPLORING else "0.34"))
FEWEST_EXAMPLES = 20

# No deadline and no judgement of speed: a slow machine is no failure.
settings.register_profile(
    "frazil",
    deadline=None,
    print_blob=True,
    derandomize=not EXPLORING,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("frazil")

# Hypothesis also draws the constants of the project's modules that are imported so far. What a test draws would depend
# on the tests before it, and on the path of the checkout. A search keeps them.
if not EXPLORING:
    providers._get_local_constants = lambda: providers._local_constants  # pyright: ignore[reportPrivateUsage]

# A script's `&` lets Ctrl-C be ignored by whatever is started in it. Dagster takes SIGTERM for Ctrl-C, and would let it
# be ignored as well, by whatever a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the tests fixed; pytest-randomly then only seeds Python's random numbers, always the same."""
    if not EXPLORING:
        config.option.randomly_reorganize = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draw as much generated input as the kind of run asks for, and never judge how fast it is drawn."""
    functions = {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}
    for function in functions:
        # The attribute that Hypothesis' own decorator `settings` puts on a test.
        if given := getattr(function, "_hypothesis_internal_use_settings", None):
            function._hypothesis_internal_use_settings = settings(
                given,
                max_examples=max(round(given.max_examples * EXAMPLES), min(given.max_examples, FEWEST_EXAMPLES)),
                suppress_health_check=[*given.suppress_health_check, HealthCheck.too_slow],
            )


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what the imports of all tests have made, which stays to the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Reap the drivers that tests have started and ended; Python complains of those that nobody waited for."""
    if launcher := sys.modules.get("jobs.streaming.supervision.processes.launcher"):
        launcher.reap_drivers()


@pytest.fixture(autouse=True)
def dagster_state() -> Iterator[None]:
    """Let no test find what another one left in Dagster's module state."""
    with own_dagster_state():
        yield
