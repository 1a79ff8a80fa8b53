"""Failure of a query as Spark tells it, in a sentence that a person can read."""

from __future__ import annotations

from jobs.stream.retry import RAISED


def query_failure_text(problem: BaseException, limit: int = 600) -> str:
    """What Spark says at first of a query's failure: no stack traces, and of a task only what it raised."""
    text = str(problem).split("JVM stacktrace")[0].strip()
    before, trace, below = text.partition("Traceback (most recent call last):")
    if trace and (raised := [match[0].strip() for match in RAISED.finditer(below)]):
        text = f"{before.strip()} {raised[-1]}".strip()
    return text[:limit] + ("…" if len(text) > limit else "")
