"""Failure of a Dagster step: a problem that a person has to read, with the next command and without a retry."""

from __future__ import annotations

import dagster as dg

from jobs.base.errors import FrazilError


def failure(problem: FrazilError) -> dg.Failure:
    """The problem as Dagster's `Failure` of a step: its message, and the next command beside it.

    Dagster does not retry it, because the problem waits for a person.
    """
    return dg.Failure(
        description=str(problem),
        metadata={"message": problem.message, "next": problem.fix or ""},
        allow_retries=False,
    )
