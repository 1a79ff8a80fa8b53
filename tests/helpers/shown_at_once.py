"""Pytest plugin that prints a failure as soon as it is known, not at the end of the run."""

from __future__ import annotations

import os
import sys

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failed set-up, call or teardown in the process that gets all reports."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nfailed: {report.nodeid} ({report.when})\n{report.longreprtext}", file=sys.stderr, flush=True)
