"""Lost letters: those that held the place of a parked table, and went with the dead letters that somebody dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from jobs.commit.stamps import Stamp


def lost_letters(newest: Stamp | None, places: Mapping[str, Stamp]) -> dict[str, int]:
    """How many letters are gone of each parked table, of which any are.

    Args:
        newest: The coordinator's newest stamp, which counts those that were written.
        places: The newest stamps of the tables' places in the dead letters as they are.
    """
    held = newest.held if newest else {}
    there = {name: places[name].totals.read if name in places else 0 for name in held}
    return {name: held[name] - there[name] for name in sorted(held) if held[name] > there[name]}


def told_lost(newest: Stamp, lost: Mapping[str, int]) -> Iterator[str]:
    """Sentences about lost letters, one for each table, with what can be done.

    Args:
        newest: The coordinator's newest stamp.
        lost: By table, how many are gone.
    """
    for name, count in lost.items():
        since = datetime.fromtimestamp(newest.parked.get(name, 0) / 1000, UTC)
        yield (
            f"{count:,} of the {newest.held[name]:,} dead letters that hold rows of table {name}, parked, are gone: "
            "the dead letters were dropped, or rolled back. Put them back as they were, if somebody has them; or read "
            f"the records again: `frazil reset-offsets {newest.stream} --to …`, to before {since:%Y-%m-%dT%H:%M:%SZ}, "
            "when it was parked (docs/offsets.md says what becomes of the other tables' rows)"
        )
