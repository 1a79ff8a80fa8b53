"""Directory of a stream's targets: a numbered list of all tables that ever were one, in a coordinator's property.

A stamp that named the tables of a batch would grow with their number, and every snapshot has a stamp. So for a stream
with many targets the coordinator's stamps hold bitmaps, whose bits are places in this directory. The directory is set
in the commit that first needs an entry. It also resolves older stamps, so an entry stays while an existing stamp uses
its place. Afterwards a table recreated under the same name takes that place.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import TypeVar

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.records.schema.decoded_columns import whole_property

T = TypeVar("T")

PREFIX = "frazil.targets."
MOST_NAMED = 2
"""Most targets that stamps list by name: those of a stream that routes nothing."""


def directory_key(stream: str) -> str:
    """Name of the table property with the directory of `stream`."""
    return PREFIX + stream


@dataclass(frozen=True, slots=True)
class TargetDirectory:
    """The tables that have been targets of a stream.

    Attributes:
        entries: Name and uuid; the place of an entry is its ordinal. A table that was renamed or recreated has another
            entry. The uuid of a former target may be empty.
    """

    entries: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(properties: Mapping[str, str], stream: str) -> TargetDirectory:
        """Directory in a coordinator's properties; empty if they have none."""
        text = whole_property(properties, directory_key(stream))
        return _decoded(text) if text else TargetDirectory()

    def to_json(self) -> str:
        """The property's text."""
        return msgspec.json.encode(self.entries).decode()

    def with_targets(
        self, uuids: Mapping[str, str], names: Collection[str], used: Callable[[], int] = lambda: -1
    ) -> TargetDirectory:
        """The directory with entries for missing targets.

        Args:
            uuids: Uuids of the targets, by name.
            names: Names of other tables that have to be named.
            used: Returns the places that existing stamps use, as the bits of a number; called if an entry is missing.
                None: all places are used.
        """
        known, named = set(self.entries), {name for name, _ in self.entries}
        new = [entry for entry in uuids.items() if entry not in known]
        new += [(name, "") for name in names if name not in named and name not in uuids]
        if not new:
            return self
        entries, taken = list(self.entries), used() if named & {name for name, _ in new} else -1
        free = {
            entry[0]: place
            for place, entry in enumerate(entries)
            if not taken >> place & 1 and uuids.get(entry[0]) != entry[1]
        }
        for name, uuid in new:
            if (place := free.pop(name, None)) is not None:
                entries[place] = (name, uuid)
            else:
                entries.append((name, uuid))
        return TargetDirectory(tuple(entries))

    def bitmap(self, names: Collection[str], uuids: Mapping[str, str]) -> str:
        """Ordinals of tables, as base64 of a number's bytes, the least significant first.

        Args:
            names: Names of tables with an entry.
            uuids: Uuids of the targets; for another table the newest entry of its name counts.
        """
        bits = 0
        for number in self._places(names, uuids).values():
            bits |= 1 << number
        return base64.b64encode(bits.to_bytes(-(-bits.bit_length() // 8), "little")).decode()

    def by_place(self, of: Mapping[str, T], uuids: Mapping[str, str]) -> dict[str, T]:
        """Values of tables, by their ordinals as text; arguments as of `bitmap`."""
        return {str(place): of[name] for name, place in self._places(of, uuids).items()}

    def by_table(self, of: Mapping[str, T]) -> dict[str, T]:
        """The inverse of `by_place`."""
        return {self.entries[int(place)][0]: each for place, each in of.items()}

    def _places(self, names: Collection[str], uuids: Mapping[str, str]) -> dict[str, int]:
        ordinals = {entry: number for number, entry in enumerate(self.entries)}
        newest = {name: number for number, (name, _) in enumerate(self.entries)}
        return {name: ordinals[name, uuids[name]] if name in uuids else newest[name] for name in names}

    def numbered(self, values: Mapping[str, int], uuids: Mapping[str, str]) -> list[list[int]]:
        """Numbers of some targets as `[[ordinal, number], …]`; see `bitmap` for the ordinals."""
        ordinals = {entry: number for number, entry in enumerate(self.entries)}
        return [[ordinals[name, uuids[name]], value] for name, value in values.items() if name in uuids]

    def by_name(self, numbered: Iterable[Sequence[int]]) -> dict[str, int]:
        """The inverse of `numbered`."""
        return {self.entries[ordinal][0]: value for ordinal, value in numbered}

    def named(self, bitmap: str) -> dict[str, str]:
        """The tables of a bitmap: uuids by name.

        Raises:
            ValueError: The directory lacks a table.
        """
        bits = int.from_bytes(base64.b64decode(bitmap), "little")
        if bits.bit_length() > len(self.entries):
            raise ValueError(
                f"a stamp names target {bits.bit_length() - 1} of its stream, and the table property {PREFIX}… lists "
                f"{len(self.entries)}: entries of it are missing"
            )
        return dict(entry for number, entry in enumerate(self.entries) if bits >> number & 1)


def used_places(stamp: str) -> int:
    """Places that a stamp uses, as the bits of a number.

    Args:
        stamp: Text of a stamp from a snapshot or a property; empty for none.
    """
    bitmaps = msgspec.json.decode(stamp).get("of", ()) if stamp else ()
    return reduce(or_, (int.from_bytes(base64.b64decode(each), "little") for each in bitmaps), 0)


@lru_cache(maxsize=64)
def _decoded(text: str) -> TargetDirectory:
    return TargetDirectory(tuple(decode_json(text, tuple[tuple[str, str], ...])))
