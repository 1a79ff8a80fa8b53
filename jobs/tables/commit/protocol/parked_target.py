"""Placeholder target of a suspended table: its records are committed as dead letters.

The dead letters have a stamp id of their own, so the placeholder has a position like any target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from jobs.base.errors import first_line
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.parked_places import PARKED_PART, parked_id, parked_places
from jobs.tables.commit.protocol.refusals import is_forbidden
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import pointwise_max
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import NewestStamps


class ParkedTarget(Target):
    """Target that stands for a suspended table."""

    def __init__(self, catalog: Catalog, letters: str, stream: str, parked: str, uuid: str, **more: Any) -> None:
        super().__init__(catalog, letters, parked_id(stream, parked), **more)
        self.parked: str = parked
        self._known_as: str = uuid

    @property
    def identity(self) -> str:
        """The uuid under which the stream knows the suspended table."""
        return self._known_as

    @property
    def owner(self) -> str:
        """Name of the stream that the target belongs to, as in its file."""
        return self.stream.partition(PARKED_PART)[0]


def held_by_letters(
    spec: StreamSpec, catalog: Catalog, known: Mapping[str, str], newest: Stamp | None, *, parking: bool
) -> dict[str, str]:
    """Suspended targets, and those about to be suspended, with the uuids under which the stream knows them.

    Args:
        known: Uuids of the tables that the stream knows, by name.
        parking: Whether to include tables that are to be suspended: dropped, recreated, or not readable for this user.
    """
    if newest is None:
        return {}
    found = {name: known.get(name, "") for name in spec.target_names if name in newest.parked}
    for name in spec.target_names if parking else ():
        if name not in found and name in known and spec.parks(name) and why_unable(catalog, name, known[name]):
            found[name] = known[name]
    return found


def letters_held(targets: Mapping[str, Target], anchored: Stamp | None, names: Iterable[str]) -> dict[str, int]:
    """Number of dead letters of each suspended table: the greater of its placeholder's and the coordinator's count.

    Args:
        anchored: The coordinator's newest stamp. Its count is greater if dead letters were dropped or rolled back.
        names: Names of tables; those that are not suspended are left out.
    """
    told = anchored.held if anchored else {}
    places = {name: targets[name] for name in names if PARKED_PART in targets[name].stream}
    return {
        name: max(place.newest.totals.read if place.newest else 0, told.get(name, 0)) for name, place in places.items()
    }


def past_their_letters(
    stamps: NewestStamps, spec: StreamSpec, targets: Mapping[str, Target]
) -> dict[str, Stamp | None]:
    """Newest stamps in which suspended tables stand behind their dead letters, which a replay lands.

    Used if the coordinator was dropped, whose stamp lists the suspended tables. A table that was resumed was claimed
    after its dead letters, and keeps its position.
    """
    letters, moved = targets.get(spec.dead_letter_table), dict(stamps)
    for name, place in parked_places(letters.table.metadata, spec.stream).items() if letters else ():
        stamp = stamps.get(name)
        if stamp is not None and place.epoch >= stamp.epoch:
            moved[name] = replace(stamp, position=pointwise_max([stamp.position, place.position]))
    return moved


def why_unable(catalog: Catalog, name: str, uuid: str) -> str | None:
    """Why loading a known table fails or gives another table; None if it may take commits."""
    try:
        found = str(catalog.load_table(name).metadata.table_uuid)
    except NoSuchTableError:
        return "the table was dropped"
    except Exception as problem:
        if not is_forbidden(problem):
            raise
        return f"the catalog does not let the table be read: {type(problem).__name__}: {first_line(problem)}"
    return None if found == uuid else "the table was dropped and created again"


def parked_target(spec: StreamSpec, catalog: Catalog, name: str, uuid: str) -> ParkedTarget:
    """Load the target that stands for a suspended table."""
    target = ParkedTarget(catalog, spec.dead_letter_table, spec.stream, name, uuid)
    target.read()
    return target
