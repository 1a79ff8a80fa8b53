"""Errors that stop a mirror, each with the cause and the next command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jobs.base.errors import FrazilError, StreamStopped
from jobs.mirrors.model.merge_plan import LAST_GENERATION
from jobs.tables.commit.stamp.offsets import TopicPartition

ANOTHER_CHANGELOG = (
    "land a new snapshot of the source in another changelog, and make another mirror of that: name both in table and "
    "mirrors of streams/{stream}.yaml, then frazil run {stream} and frazil mirror run {stream}"
)
"""Next command if a changelog cannot be merged into a mirror any more."""


class MirrorStopped(StreamStopped):
    """A mirror refuses to go on, because going on would leave out a change, or mix two histories.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: the command that the message names
    """

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message} It stays as it is and can be read; the changelog goes on.", fix=fix)


def _change(offset: int, partition: TopicPartition, what: str = "change") -> str:
    return f"the {what} at offset {offset} of topic {partition.topic}, partition {partition.partition},"


class RestoredSourceError(MirrorStopped):
    """The source was restored: later changes have lower positions, as after a restore from a backup.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: `frazil mirror accept S --new-generation --at TOPIC:PARTITION:OFFSET` starts a new source timeline

    If their times are unknown, the changes may also have been sent twice.

    Attributes:
        offset: Offset of the first such change in its partition.
        position: Position of that change.
        greatest: The greatest position before it.
        breaks: The offset of the first such change of each partition that has one.
    """

    def __init__(
        self,
        stream: str,
        partition: TopicPartition,
        offset: int,
        position: str,
        greatest: str,
        *,
        timed: bool = True,
        breaks: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        at = {partition: offset} | dict(breaks or {})
        places = " ".join(f"--at {each.topic}:{each.partition}:{since}" for each, since in sorted(at.items()))
        where = f"stream {stream}: {_change(offset, partition)}"
        went = (
            f"{where} happened later than the ones before it, but its position in the source is lower: {position} "
            f"after {greatest}. The source was restored, or its log starts again."
            if timed
            else f"{where} has a lower position in the source than one before it: {position} after {greatest}. It was "
            "sent twice, or the source was restored. Which one is unknown, because it, or an earlier change, "
            "has no time (_change_at)."
        )
        super().__init__(
            f"{went} If it is a row of a snapshot, the connector may only have read the table again: by an ad-hoc "
            "snapshot of the type blocking, or because its own offsets were lost. Positions before and after it "
            "cannot be compared, so the mirror stops.",
            fix=f"frazil mirror accept {stream} --new-generation {places}",
        )
        self.offset: int = offset
        self.position: str = position
        self.greatest: str = greatest
        self.breaks: dict[TopicPartition, int] = at


class TooManyGenerationsError(MirrorStopped):
    """Sources have taken turns so often that no number is left for another source timeline.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: let the lineage name no server, or give each source its own topics; then land a new snapshot of the source in
        another changelog, and make another mirror of it
    """

    def __init__(self, stream: str, lineages: Sequence[str]) -> None:
        """`lineages`: Names of the newest lineages."""
        super().__init__(
            f"stream {stream}: positions have started again more than {LAST_GENERATION:,} times, by turns of "
            f"{', '.join(lineages)} (_change_lineage): several servers write to the log that the connector reads, or "
            "several connectors to one topic. The order of changes (_change_order) has no number left, so the mirror "
            "stops.",
            fix="let each source have topics of its own, or leave out of _change_lineage who wrote, by a step of "
            f"transform in streams/{stream}.yaml; then {ANOTHER_CHANGELOG.format(stream=stream)}",
        )


class AnotherLogError(MirrorStopped):
    """A mirror's topic was recreated or cut, so its offsets have started again.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: land a new snapshot of the source in another changelog, and make another mirror of it
    """

    def __init__(self, stream: str, mirror: str, changelog: str, topic: str, said: str, sequence: int | None) -> None:
        """`said`: What happened to the topic. `sequence`: Sequence number of the snapshot with an operator's answer."""
        answered = f", as was answered in its snapshot with sequence number {sequence}" if sequence is not None else ""
        super().__init__(
            f"stream {stream}: topic {topic} of changelog {changelog} {said}{answered}. Offsets start again there, "
            f"and mirror {mirror} needs them to order the changes. So it stops.",
            fix=ANOTHER_CHANGELOG.format(stream=stream),
        )


class AddedPartitionsError(MirrorStopped):
    """A mirror's topic got partitions, and only offsets order its changes.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: land a new snapshot of the source in another changelog, and make another mirror of it
    """

    def __init__(self, stream: str, mirror: str, changelog: str, topic: str, added: Sequence[int]) -> None:
        super().__init__(
            f"stream {stream}: topic {topic} of changelog {changelog} got partitions {', '.join(map(str, added))}, and "
            "its changes carry no positions in the source. Keys come to other partitions now, and offsets do not say "
            f"which of two changes there is the later one. So mirror {mirror} stops.",
            fix=ANOTHER_CHANGELOG.format(stream=stream),
        )


class NullKeyError(MirrorStopped):
    """A change has a null in a column of the mirror's key.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: name key columns that are never null in the connector or in `mirrors.key`; then `frazil mirror run S`
    """

    def __init__(self, stream: str, key: tuple[str, ...], first: tuple[TopicPartition, int], count: int) -> None:
        partition, offset = first
        super().__init__(
            f"stream {stream}: {count:,} changes have a null in the mirror's key ({', '.join(key)}), the first at "
            f"offset {offset} of topic {partition.topic}, partition {partition.partition}. Which row they change is "
            "not known, so the mirror stops.",
            fix="name columns that are never null in the connector (message.key.columns), for a new changelog; if its "
            f"records have no keys, in mirrors.key of streams/{stream}.yaml",
        )


class SharedTruncateError(MirrorStopped):
    """A topic's table was truncated, and the changelog has changes of other topics: rows do not name their topic.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: route each topic to its own changelog, or drop truncates with a `where` step; then land a new snapshot of the
        source in another changelog, and make another mirror of it
    """

    def __init__(self, stream: str, partition: TopicPartition, offset: int, others: Sequence[str]) -> None:
        super().__init__(
            f"stream {stream}: {_change(offset, partition)} truncates that topic's table, and the changelog has "
            f"changes of others, too: {', '.join(others)}. Which rows of the mirror came from which is not "
            "known, so the mirror stops.",
            fix="land each topic in a changelog of its own, by a route over topics; or leave truncates out of a new "
            f"changelog, by a step of transform: where: \"_change_op <> 't'\" in streams/{stream}.yaml",
        )


class UnorderedTruncateError(MirrorStopped):
    """A truncate has no position, and the topic has several partitions: the changes before it are unknown.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: let the connector send positions, or name `changes.order_by`; then land a new snapshot of the source in
        another changelog, and make another mirror of it
    """

    def __init__(self, stream: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"stream {stream}: {_change(offset, partition, 'truncate')} has no position in the source, and the topic "
            "has more than one partition. Which changes of the others came before it is not known, so the mirror "
            "stops.",
            fix=f"let the connector send positions, or name a column: changes.order_by of streams/{stream}.yaml",
        )


class ScatteredChangesError(MirrorStopped):
    """Changes have neither keys nor positions, and come from several partitions: their order is unknown.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: give the records keys, one partition, or `changes.order_by`; then land a new snapshot of the source in another
        changelog, and make another mirror of it
    """

    def __init__(self, stream: str, topic: str, partitions: Sequence[int]) -> None:
        super().__init__(
            f"stream {stream}: changes of topic {topic} come from partitions {', '.join(map(str, partitions))}, and "
            "have neither keys (_change_key) nor positions in the source. So changes of one row may be in several "
            "partitions, and which of them is the later one is not known: the mirror stops.",
            fix="let the records have keys (message.key.columns of the connector) or the topic one partition, or name "
            f"what orders them, changes.order_by of streams/{stream}.yaml; then land them in a new changelog, for a "
            "new mirror",
        )


class BelowTruncateError(MirrorStopped):
    """Changes of a source are later than a truncate but ordered before it, because another source came in between.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: `frazil mirror accept S --new-generation --at TOPIC:PARTITION:OFFSET` starts a new source timeline
    """

    def __init__(self, stream: str, partition: TopicPartition, first: int, latest: int) -> None:
        """`first`: Offset of the first new change. `latest`: Latest time of the truncating source, µs since 1970."""
        time = datetime.fromtimestamp(latest / 1e6, UTC)
        super().__init__(
            f"stream {stream}: changes of topic {partition.topic}, partition {partition.partition}, from offset "
            f"{first} on, are of a source before the one that truncated the table in another partition, and some "
            f"happened later than the last that came of that one, of {time:%Y-%m-%d %H:%M:%S} UTC: the former source "
            "has taken over again. The truncate would take them, so the mirror stops.",
            fix="look up the offset of the first change there with a later _change_at, then frazil mirror accept "
            f"{stream} --new-generation --at {partition.topic}:{partition.partition}:OFFSET",
        )


class UnknownGenerationError(MirrorStopped):
    """Changes of former source timelines are needed, but the mirror's stamp no longer has these timelines.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: `frazil mirror rebuild S`
    """

    def __init__(self, stream: str, partition: TopicPartition, first: int, late: tuple[str, int] | None = None) -> None:
        """`first`: First offset with a known timeline. `late`: Kind and offset of the change that came late."""
        what = (
            "changes from there are needed: they have come late, or rows are merged again or compared"
            if late is None
            else f"a {late[0]} from there has come late, at offset {late[1]}"
        )
        super().__init__(
            f"stream {stream}: positions of topic {partition.topic}, partition {partition.partition}, have started "
            f"again at offset {first} or before, and {what}. The mirror no longer knows the order of those changes, "
            "so it stops.",
            fix=f"frazil mirror rebuild {stream}, which reads all changes; where some have expired, or to compare, "
            "land a new snapshot of the source in another changelog, and make another mirror of that",
        )


class MovedValuesError(MirrorStopped):
    """Values of rows whose key changed are in missing changes of their former keys.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: `frazil mirror run S` once they have landed; or `frazil mirror rebuild S --incomplete`, which leaves the
        values null
    """

    def __init__(self, stream: str, count: int, example: Mapping[str, Any]) -> None:
        """`example`: Key of one such row."""
        key = ", ".join(f"{name} = {value}" for name, value in example.items())
        super().__init__(
            f"stream {stream}: {count:,} values of rows whose key changed were not sent with the new key, for "
            f"instance of the row with {key}, and some changes of the former keys are missing: they are still to come "
            "in another partition, are dead letters, or have expired. So the mirror stops.",
            fix=f"frazil mirror run {stream} once they have landed (frazil letters {stream} shows dead letters). If "
            "they never do, let the connector take a snapshot of the rows (an incremental one, by a signal), then "
            f"the same; or frazil mirror rebuild {stream} --incomplete, which leaves such values null",
        )


class WaitingRowsError(MirrorStopped):
    """An earlier release has merged rows without values that it still waited for.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: `frazil mirror rebuild S --table MIRROR`
    """

    def __init__(self, stream: str, mirror: str, rows: int) -> None:
        super().__init__(
            f"stream {stream}: {rows:,} rows of mirror {mirror}, whose keys changed, lack values of their former keys: "
            "an earlier release of frazil waited for changes of these. This one does not, so the mirror stops.",
            fix=f"frazil mirror rebuild {stream} --table {mirror}",
        )


class KeylessChangelogError(FrazilError):
    """A changelog has no keys, and its mirror names none, so no mirror can be built from it.

    Safe: The changelog goes on.
    Next: name `mirrors.key`, or decode keys into `_change_key`
    """

    def __init__(self, stream: str, mirror: str, changelog: str) -> None:
        super().__init__(
            f"stream {stream}: changelog {changelog} has no column _change_key, so the columns that identify the rows "
            f"of mirror {mirror} are unknown. The changelog lands all the same; only this mirror is not made.",
            fix=f"name them in mirrors: key of streams/{stream}.yaml, or decode the records' keys: decode.key.into: "
            "_change_key. If records have no keys, as of a table without a primary key, let the connector give them "
            "some (message.key.columns), for a new changelog",
        )


class ExpiredChangesError(FrazilError):
    """A mirror is to be built from a changelog whose changes have expired.

    Safe: The changelog and other mirrors go on.
    Next: land a new snapshot of the source, then `frazil mirror rebuild S --table MIRROR --incomplete`
    """

    def __init__(self, stream: str, mirror: str, changelog: str, rows: int, before: str) -> None:
        super().__init__(
            f"stream {stream}: mirror {mirror} cannot be made from changelog {changelog}, as {rows:,} of its changes, "
            f"from before {before}, have expired (changes.keep). Rows that have not changed since would be missing.",
            fix="let the connector take a new snapshot of the table and land it; then `frazil mirror rebuild "
            f"{stream} --table {mirror} --incomplete`, which makes the mirror of what is left",
        )


class MissedChangesError(FrazilError):
    """Changes have expired that a mirror has not merged, because the mirror was not in the stream's file then.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: land a new snapshot of the source, then `frazil mirror rebuild S --table MIRROR --incomplete`
    """

    def __init__(self, stream: str, mirror: str, changelog: str, before: str) -> None:
        super().__init__(
            f"stream {stream}: changes that mirror {mirror} does not have yet, from before {before}, have expired in "
            f"changelog {changelog} (changes.keep): its file did not name the mirror then. It would lack them.",
            fix="let the connector take a new snapshot of the table and land it; then `frazil mirror rebuild "
            f"{stream} --table {mirror} --incomplete`, which makes the mirror of what is left",
        )


class StaleExpiryError(FrazilError):
    """A changelog's position is before its expired changes: it was rolled back, or its topic was recreated.

    Safe: The mirror stays as it is and can be read, and the changelog goes on.
    Next: bring the changelog's snapshots back, or land a new snapshot of the source in another changelog, and make
        another mirror of it
    """

    def __init__(self, stream: str, changelog: str, partition: TopicPartition, since: int, position: int) -> None:
        super().__init__(
            f"stream {stream}: changelog {changelog} has {partition} up to offset {position:,}, and its property "
            f"frazil.changes-expired says that changes before {since:,} have expired: it was moved back to before "
            "that, or offsets have started again, or are read again. New changes there would be taken for the "
            "expired ones.",
            fix="where they are read again, by frazil reset-offsets, wait until the stream is past that. Else bring "
            "the changelog's snapshots back, or let the source take a new snapshot in another one",
        )
