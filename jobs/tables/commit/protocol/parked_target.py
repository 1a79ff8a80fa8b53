"""Parked target: the place of a suspended table, held by dead letters of the records that are for it.

The letters have a stamp id of their own, so the place has a position as any target has.
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
    """The target that stands for a parked table."""

    def __init__(self, catalog: Catalog, letters: str, stream: str, parked: str, uuid: str, **more: Any) -> None:
        super().__init__(catalog, letters, parked_id(stream, parked), **more)
        self.parked: str = parked
        self._known_as: str = uuid

    @property
    def identity(self) -> str:
        """The uuid under which the stream knows the parked table."""
        return self._known_as

    @property
    def owner(self) -> str:
        """The stream whose target it is, as its file calls it."""
        return self.stream.partition(PARKED_PART)[0]


def held_by_letters(
    spec: StreamSpec, catalog: Catalog, known: Mapping[str, str], newest: Stamp | None, *, parking: bool
) -> dict[str, str]:
    """The targets whose place letters hold: those that are parked, or are to be; with the uuids that they are known by.

    Args:
        known: Uuids by name, of the tables that the stream knows.
        parking: Whether those count as well that are gone, or another one, or that the catalog does not let this user
            load, and are parked for that.
    """
    if newest is None:
        return {}
    found = {name: known.get(name, "") for name in spec.target_names if name in newest.parked}
    for name in spec.target_names if parking else ():
        if name not in found and name in known and spec.parks(name) and why_unable(catalog, name, known[name]):
            found[name] = known[name]
    return found


def letters_held(targets: Mapping[str, Target], anchored: Stamp | None, names: Iterable[str]) -> dict[str, int]:
    """How many letters the places of parked tables have, by their stamps, or the coordinator's if that says more.

    Args:
        anchored: The coordinator's newest stamp, which says more once dead letters were dropped, or rolled back.
        names: Of the tables; of one that is not parked nothing is told.
    """
    told = anchored.held if anchored else {}
    places = {name: targets[name] for name in names if PARKED_PART in targets[name].stream}
    return {
        name: max(place.newest.totals.read if place.newest else 0, told.get(name, 0)) for name, place in places.items()
    }


def past_their_letters(
    stamps: NewestStamps, spec: StreamSpec, targets: Mapping[str, Target]
) -> dict[str, Stamp | None]:
    """The newest stamps where tables that were parked stand behind what letters hold for them; a replay brings that.

    For a coordinator that is gone, whose stamp told which were. A table that was unparked was claimed after its
    letters.
    """
    letters, moved = targets.get(spec.dead_letter_table), dict(stamps)
    for name, place in parked_places(letters.table.metadata, spec.stream).items() if letters else ():
        stamp = stamps.get(name)
        if stamp is not None and place.epoch >= stamp.epoch:
            moved[name] = replace(stamp, position=pointwise_max([stamp.position, place.position]))
    return moved


def why_unable(catalog: Catalog, name: str, uuid: str) -> str | None:
    """Why a table takes no commits that a stream knows, as far as loading it tells; None if it may take some."""
    try:
        found = str(catalog.load_table(name).metadata.table_uuid)
    except NoSuchTableError:
        return "the table is gone"
    except Exception as problem:
        if not is_forbidden(problem):
            raise
        return f"the catalog does not let the table be read: {type(problem).__name__}: {first_line(problem)}"
    return None if found == uuid else "the table was dropped and created again"


def parked_target(spec: StreamSpec, catalog: Catalog, name: str, uuid: str) -> ParkedTarget:
    """The target that stands for a parked table, read."""
    target = ParkedTarget(catalog, spec.dead_letter_table, spec.stream, name, uuid)
    target.read()
    return target
