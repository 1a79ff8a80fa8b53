"""Second run of a batch that has landed in part: whether its records are decided on as they were the first time."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from jobs.commit.target_positions import TargetNeed
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults

log = logging.getLogger(__name__)


def tell_other_decisions(stream: OpenStream, needs: Mapping[str, TargetNeed], results: TaskResults) -> int:
    """Tell when letters that only the dead letters still lack are not as many as the coordinator's stamp says.

    A table that was altered since, or a registry that knows a schema by now, lets a record decode that failed then. Its
    row is not written any more, as the coordinator has passed it, and its letter is not made.

    Args:
        stream: The stream.
        needs: What its targets lack of the batch.
        results: Of the tasks.

    Returns:
        How many letters fewer there are; less than zero if there are more, of records that have landed as well.
    """
    letters = next((each.name for each in stream.spec.targets if each.role == "dead_letters"), None)
    newest = stream.anchor.newest
    if letters is None or newest is None or needs[stream.anchor.name].whole or not needs[letters].whole:
        return 0
    said = newest.rows.get(letters, 0)
    fewer = said - (results.rows().get(letters, 0) - results.counts().dead)
    if fewer:
        log.error(
            "stream %s: of records that table %s is past, %d were to be dead letters, and %d are now: its schema, or "
            "what the registry knows, has changed between two runs of the batch. frazil audit %s --full names them",
            *(stream.spec.stream, stream.anchor.name, said, said - fewer, stream.spec.stream),
        )
    return fewer
