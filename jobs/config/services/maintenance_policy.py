"""Maintenance policy: the block ``maintenance``, of the settings, of a stream, of one table.

Every block may give any of the keys; a block lies over another one, and only what it gives counts
(``jobs.config.settings.maintained_tables`` brings them together)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, model_serializer

from jobs.config.documents.base import (
    MAX_INT64,
    AnyInt,
    Flag,
    Location,
    Problem,
    Problems,
    SpecModel,
)
from jobs.config.documents.units import (
    Duration,
    Size,
    format_duration,
    format_size,
    parse_duration,
)
from jobs.config.values.fields import NonNegativeInt, PositiveInt, refused_character
from jobs.config.values.partitioning import SortText

_TEXT = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*[-–]\s*([0-9]{1,2}):([0-9]{2})")
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """A part of every day.

    Attributes:
        start: Minutes after midnight UTC at which the window opens.
        end: Minutes after midnight UTC at which it closes; if not after `start`, the window goes past midnight.
    """

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start // 60:02}:{self.start % 60:02}-{self.end // 60:02}:{self.end % 60:02}"

    def __contains__(self, moment: datetime) -> bool:
        utc = moment.astimezone(UTC)
        minute = utc.hour * 60 + utc.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse_window(value: object) -> Window:
    """Reads two times of the day, such as ``22:00-05:00``; a ``Window`` passes through.

    Raises:
        ValueError: The value is anything else, or the window is empty.
    """
    if isinstance(value, Window):
        return value
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be two times of the day (UTC), such as 22:00-05:00")
    hour, minute, end_hour, end_minute = map(int, match.groups())
    start, end = hour * 60 + minute, end_hour * 60 + end_minute
    if max(minute, end_minute) > 59 or start >= _DAY or end > _DAY:
        raise ValueError("must be times from 00:00 to 24:00, such as 22:00-05:00")
    if start == end:
        raise ValueError("contains no time; leave windows out for always")
    return Window(start, end)


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Whether a time is within one of the windows; true without windows."""
    return not windows or any(now in window for window in windows)


WindowText = Annotated[Window, PlainValidator(parse_window), PlainSerializer(str, return_type=str)]


ModelT = TypeVar("ModelT", bound=SpecModel)

STRATEGY: Location = ("compact", "strategy")
SORT_BY: Location = ("compact", "sort_by")
TARGET: Location = ("compact", "target")
KEEP: Location = ("expire", "keep")
TIME_TRAVEL: Location = ("expire", "time_travel")
MIN_SNAPSHOTS: Location = ("expire", "min_snapshots")
MAX_SNAPSHOTS: Location = ("expire", "max_snapshots")
BUDGET: Location = ("budget",)


def overlaid(below: ModelT, layer: SpecModel) -> ModelT:
    """Returns the lower layer with the keys that the upper one sets, without keys that the lower one does not know."""
    given: dict[str, Any] = {}
    for name in layer.model_fields_set & set(type(below).model_fields):
        value, former = getattr(layer, name), getattr(below, name)
        given[name] = overlaid(former, value) if isinstance(former, SpecModel) else value
    if "strategy" in given and "sort_by" in type(below).model_fields:
        # A strategy and its columns belong together: a block that only sets another strategy drops the columns.
        given.setdefault("sort_by", ())
    return below.model_copy(update=given)


def is_given(block: SpecModel, place: Location) -> bool:
    """Whether a layer of the policy sets the key itself, so that it is no default."""
    first, *rest = place
    if first not in block.model_fields_set:
        return False
    return not rest or is_given(getattr(block, str(first)), tuple(rest))


def contradictions(policy: Policy) -> Iterator[tuple[tuple[Location, ...], str]]:
    """Yields contradictions in a policy: the keys, and a sentence."""
    compact, expire = policy.compact, policy.expire
    if expire.time_travel is not None and expire.keep < expire.time_travel:
        keep, promised = format_duration(expire.keep), format_duration(expire.time_travel)
        sentence = (
            f"expire.keep ({keep}) is shorter than the time travel that expire.time_travel promises ({promised}); "
            f"keep at least {promised}"
        )
        yield (KEEP, TIME_TRAVEL), sentence
    if expire.min_snapshots > expire.max_snapshots:
        sentence = (
            f"expire.min_snapshots ({expire.min_snapshots}) is above expire.max_snapshots ({expire.max_snapshots})"
        )
        yield (MIN_SNAPSHOTS, MAX_SNAPSHOTS), sentence
    if policy.budget < compact.target:
        sentence = (
            f"the budget of a run ({format_size(policy.budget)}) is below compact.target "
            f"({format_size(compact.target)}): no such file could ever be written"
        )
        yield (BUDGET, TARGET), sentence
    if compact.strategy == "zorder" and any(column.direction or column.nulls for column in compact.sort_by):
        yield (SORT_BY, STRATEGY), "z-order has no direction; leave out asc, desc and nulls"


def contradictions_given(policy: Policy, block: Policy) -> list[Problem]:
    """Returns the contradictions of a policy that a block is part of, each at the first key that the block sets."""
    found: list[Problem] = []
    for places, text in contradictions(policy):
        given = [place for place in places if is_given(block, place)]
        found.extend((place, text) for place in given[:1])
    return found


# Files of a write in progress are no garbage, and a streaming job may take long (Iceberg's default).
_ORPHAN_FLOOR = timedelta(days=3)
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]*"
_TABLE_OR_NAMESPACE = re.compile(rf"{_NAME}(\.{_NAME})*\.(\*|{_NAME})")


def _fragment(value: object) -> Any:
    """Reads a share of the target: ``1/8`` or 0.125."""
    share = value
    if isinstance(value, str) and (match := re.fullmatch(r"([0-9]{1,6})\s*/\s*([1-9][0-9]{0,5})", value.strip())):
        share = int(match[1]) / int(match[2])
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise ValueError("must be a share of compact.target, such as 1/8 or 0.125")
    if not 0 < share < 1:
        raise ValueError(
            "must be above 0 and below 1: files smaller than this share of compact.target are small, and those that "
            "compaction writes must not be"
        )
    return float(share)


def _none_or_duration(value: object) -> Any:
    if value is None or value == "none":
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}; or none") from None


def _above_the_floor(value: timedelta) -> timedelta:
    if value < _ORPHAN_FLOOR:
        raise ValueError("must be at least 3d: files that a write in flight has not committed yet are no orphans")
    return value


def _table_or_namespace(value: str) -> str:
    if not _TABLE_OR_NAMESPACE.fullmatch(value):
        raise ValueError(
            "must be namespace.table, with letters, digits, _ and -, or namespace.* for all tables of a namespace"
            + refused_character(value, also="*")
        )
    return value


AtLeastTwo = Annotated[AnyInt, Field(ge=2, le=MAX_INT64)]
Share = Annotated[float, Field(gt=0, le=1)]
OrNone = Annotated[
    timedelta | None,
    BeforeValidator(_none_or_duration),
    PlainSerializer(lambda value: format_duration(value) if value else "none", return_type=str),
]


class Layer(SpecModel):
    """A block of which only the keys that are set count, and are dumped."""

    @model_serializer(mode="wrap")
    def _what_is_given(self, handler: Any) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}


class Compact(Layer):
    """Which data files are brought together, and how.

    Args:
        enabled: Turns compaction on or off.
        target: Size of the files that compaction writes.
        fragment: Share of ``target`` below which a file is small, such as ``1/8``.
        min_files: Small files in a partition at which it is compacted.
        delete_ratio: Share of deleted rows at which a partition is compacted.
        max_delete_files: Delete files above which a partition is compacted.
        cold_after: Time without a new file after which a partition is cold.
        strategy: Layout of cold partitions, applied once to each. Others are compacted by ``binpack``.
        sort_by: Columns for ``sort`` and ``zorder``.
    """

    example = "{target: 128MB, strategy: sort, sort_by: [created_at]}"

    enabled: Flag = True
    target: Size = 128 * 1024**2
    fragment: Annotated[float, BeforeValidator(_fragment)] = 1 / 8
    min_files: AtLeastTwo = 12
    delete_ratio: Share = 0.1
    max_delete_files: NonNegativeInt = 10
    cold_after: Duration = timedelta(hours=1)
    strategy: Literal["binpack", "sort", "zorder"] = "binpack"
    sort_by: tuple[SortText, ...] = ()

    @property
    def small(self) -> float:
        """Number of bytes below which a file is small."""
        return self.target * self.fragment


class Manifests(Layer):
    """When the manifests are rewritten: more than ``max``, or many small ones; and how large they become.

    Args:
        enabled: Turns rewriting of manifests on or off.
        max: Manifests above which they are rewritten.
        target: Size of a full manifest. Small ones, below a quarter of it, lower the health score.
    """

    enabled: Flag = True
    max: PositiveInt = 100
    target: Size = 8 * 1024**2


class Remake(Layer):
    """When the branch of a write-audit-publish stream is rebased onto main.

    Args:
        enabled: Turns rebasing of the branch on or off.
        files: Files on the branch, replaced on ``main``, at which it is rebased.
        size: Bytes of such files at which it is rebased.
    """

    enabled: Flag = True
    files: PositiveInt = 500
    size: Size = 1024**3


class Expire(Layer):
    """Which snapshots expire.

    Args:
        enabled: Turns expiry of snapshots on or off.
        keep: Age below which snapshots stay, within ``max_snapshots``.
        min_snapshots: Snapshots that stay whatever their age.
        max_snapshots: Most snapshots that stay. Every commit rewrites the list of all of them.
        time_travel: Age up to which readers may travel back; no younger snapshot expires. Without it, no promise.
    """

    example = "{keep: 24h}"

    enabled: Flag = True
    keep: Duration = timedelta(hours=24)
    min_snapshots: PositiveInt = 10
    max_snapshots: PositiveInt = 300
    time_travel: OrNone = None


class Orphans(Layer):
    """When files that nothing refers to are deleted.

    Args:
        enabled: Turns removal of orphan files on or off.
        older_than: Age below which files stay, at least ``3d``.
        every: Time between two searches for orphan files.
        max_share: Share of the listed files above which nothing is deleted.
        max_files: Number of orphan files above which nothing is deleted.
    """

    example = "{older_than: 7d}"

    enabled: Flag = True
    older_than: Annotated[Duration, AfterValidator(_above_the_floor)] = timedelta(days=7)
    every: Duration = timedelta(days=7)
    max_share: Share = 0.2
    max_files: PositiveInt = 100_000


class Metadata(Layer):
    """How many former versions of the table's metadata file stay.

    Args:
        enabled: Turns the limit on or off.
        previous_versions: Former metadata files that stay.
    """

    enabled: Flag = True
    previous_versions: PositiveInt = 50


class Policy(Layer):
    """How a table is kept healthy.

    Args:
        enabled: Turns all maintenance of the table on or off.
        compact: Compaction of data files.
        manifests: Rewriting of manifests.
        remake: Rebasing of a write-audit-publish branch.
        expire: Expiry of snapshots.
        orphans: Removal of orphan files.
        metadata: Limit of metadata files.
        windows: Times of the day (UTC) in which files are rewritten, such as ``22:00-05:00``. Without any, always;
            expiry runs at any time.
        budget: Most bytes that one run rewrites in the table.
    """

    example = "{expire: {keep: 7d}, windows: ['22:00-05:00']}"

    enabled: Flag = True
    compact: Compact = Compact()
    manifests: Manifests = Manifests()
    remake: Remake = Remake()
    expire: Expire = Expire()
    orphans: Orphans = Orphans()
    metadata: Metadata = Metadata()
    windows: tuple[WindowText, ...] = ()
    budget: Size = 50 * 1024**3

    def _problems(self) -> Problems:
        for places, text in contradictions(self):
            if all(is_given(self, place) for place in places):
                yield places[0], text
        # Within one block, strategy and columns belong together; across layers, a strategy without columns drops the
        # columns of lower layers.
        compact = self.compact
        if compact.strategy != "binpack" and not compact.sort_by:
            yield STRATEGY, f"{compact.strategy} needs the columns: sort_by"
        if compact.strategy == "binpack" and compact.sort_by:
            yield SORT_BY, "is for strategy: sort and strategy: zorder; add one of them"


class TablePolicy(Policy):
    """The policy of one table, or of all tables of a namespace, that the settings name.

    Args:
        name: Table, or all tables of a namespace as ``namespace.*``.
    """

    example = "{name: orders.payments, expire: {keep: 7d}, windows: ['22:00-05:00']}"

    name: Annotated[str, AfterValidator(_table_or_namespace)]


class StreamMaintenance(Policy):
    """The policy of a stream's table, and of its dead-letter table.

    Args:
        dead_letters: Policy of the dead-letter table, over the one of the stream.
    """

    dead_letters: Policy = Policy()


class Maintenance(Policy):
    """The policy of all tables, and the further tables that frazil maintains.

    Args:
        tables: Further tables that frazil maintains, each with a policy over this one.
    """

    example = "{expire: {keep: 7d}, windows: ['22:00-05:00'], tables: [{name: orders.payments}]}"

    tables: tuple[TablePolicy, ...] = ()

    def _problems(self) -> Problems:
        if found := list(super()._problems()):
            yield from found
            return
        yield from contradictions_given(overlaid(Policy(), self), self)
        seen: set[str] = set()
        for index, table in enumerate(self.tables):
            at: Location = ("tables", index)
            together = overlaid(overlaid(Policy(), self), table)
            yield from (((*at, *place), text) for place, text in contradictions_given(together, table))
            if table.name in seen:
                yield (*at, "name"), f"'{table.name}' is here twice"
            seen.add(table.name)
