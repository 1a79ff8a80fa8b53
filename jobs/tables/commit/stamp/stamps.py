"""Stamps: what every snapshot committed by frazil records about a stream.

A stamp is in the snapshot's summary under `SUMMARY_KEY`. A stream's newest stamp is also the table property
`property_key(stream)`, set in the same commit, so that it survives the expiry of its snapshot.

A stamp's `start` holds for *all* targets of the stream: a batch begins only after every target has committed the
previous one. So `start` on any target proves that every target is complete up to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Self

import msgspec
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.tables.commit.stamp.decided_names import DecidedNames, pack_names, unpack_names
from jobs.tables.commit.stamp.event_times import EventTimes, pack_event_times, unpack_event_times
from jobs.tables.commit.stamp.offsets import (
    Positions,
    TopicPartition,
    by_topic,
    from_topics,
)
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import (
    Counts,
    Decision,
    LastRead,
    PartitionCounts,
    at_positions,
)
from jobs.tables.commit.stamp.stamp_json import (
    pack_counts,
    pack_decision,
    pack_last_reads,
    pack_parts,
    pack_positions,
    pack_retired,
    unpack_decision,
    unpack_last_reads,
    unpack_parts,
    unpack_positions,
    unpack_retired,
)
from jobs.tables.commit.stamp.target_directory import MOST_NAMED, TargetDirectory

SUMMARY_KEY = "frazil.stamp"
# Entry of the summary of a backfill's snapshots: the name of the promoted column. No other value changes.
BACKFILL_KEY = "frazil.backfilled"
PROPERTY_PREFIX = "frazil.stamp."
# Suffix of the id under which the publications of a stream are stamped.
PUBLISH_PART = "~publish"
FORMAT = 1
# Fields with an entry for each table that has its own columns.
_OF_TABLES = frozenset({"schemas", "aliases", "decodes"})
_NUMBERED = frozenset({"parked", "held"})


def property_key(stream: str) -> str:
    """Name of the table property with the newest stamp of `stream`."""
    return PROPERTY_PREFIX + stream


def sequences_key(stream: str) -> str:
    """Name of a coordinator's property with the newest known sequence numbers of the other tables of `stream`."""
    return f"frazil.sequences.{stream}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """One commit of one stream on one target. Fields that stamps of earlier versions lack have defaults.

    Fields marked "Anchor" are on the coordinator only. Fields marked (kept) describe a batch and are copied by the
    claims after it.

    Attributes:
        kind: `batch` for records, `claim` for a driver that takes the target over, `accept` for an operator's decision.
        batch: Spark's batch number; it starts again at 0 with every epoch.
        epoch: Greater with every driver that takes the stream over.
        config: Hash of the configuration that makes the rows; `generation`: the configuration of the driver, see
            `jobs.config.settings.generation`.
        start: Start of the batch per partition; every target is complete up to here.
        position: Position of this target per partition.
        ends: Known end of the log, for partitions that were not read to their end.
        valid_through_ms: Every record with an older timestamp has landed; times are milliseconds since 1970, UTC.
        rows: Rows of the batch per target (kept), which show a recovery the targets that had to commit. 1 for any
            number if read from bitmaps.
        failed: Dead letters of the batch (kept). None with two targets, or if the coordinator was ahead of the batch.
        counts: Records of the batch that this target had not yet read; for dead letters, `read` and `dead` are the rows
            that it received. `parts`: per partition. `totals`: over the life of the target.
        targets: Anchor: the table uuid of each target. `topics`: Kafka's id of each topic.
        note: Author and reason of an answer; only with `accept`. `decision`: the decision about this table's records.
        sequence: Sequence number of the stamped snapshot; set by the commit.
        moved: Sequence number of the stream's last stamp on this table that is no claim, itself included; 0 if there is
            none. Set by the commit.
        last_reads: Anchor: last record read of each partition; ignored at another position than the stamp's.
        retired: Anchor: dropped topics, in case they return.
        schema_id: Schema of the stream's table by which the records were decided (kept).
        names: Anchor: further names of columns by which records were matched (kept).
        schemas, further_names, decoded_of: Anchor: `schema_id`, `names` and `decoded` by table, if tables have their
        own columns and the batch had records for them (kept).
        unknown_ids: Anchor: smallest ids of writer schemas, numbers or GUIDs, that the registry did not know (kept).
        decoded: Digest of the decoded columns that the table keeps, if steps change columns that no file declares
            (kept).
        branch: Branch of the table that the stamp was committed to; empty for main. Set by the commit.
        event_time: Anchor: the watermark and its sources.
        published: On publications: sequence number through which main has each branch. `landed`: positions of the
            stream in main.
        before_ms: Anchor, with write-audit-publish: `valid_through_ms` before the batch, by the driver's own knowledge.
        batch_ms: Anchor: time of the batch that now() returned, if expressions use it (kept).
        parked: Anchor: suspended targets and their times. `held`: their numbers of dead letters. Both are unknown if
            read from bitmaps without the table's properties.
        sequences: Anchor, as a table property beside the stamp: by uuid of every other target, the sequence number of
            the stream's newest commit there that is no claim. None: the property stays.
        coordinator: On every other target: uuid of the coordinator, and its newest commit that is no claim.
        mirror: On a mirror: see `jobs.mirrors.model.mirror_stamp` (kept).
    """

    stream: str
    kind: Literal["batch", "claim", "accept"]
    batch: int
    epoch: int
    config: str
    start: Positions
    position: Positions
    ends: Positions = field(default_factory=dict)
    valid_through_ms: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    failed: int | None = None
    counts: Counts = field(default_factory=Counts)
    totals: Counts = field(default_factory=Counts)
    targets: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    generation: str = ""
    sequence: int = 0
    parts: Mapping[TopicPartition, PartitionCounts] = field(default_factory=dict)
    decision: Decision | None = None
    moved: int | None = None
    last_reads: Mapping[TopicPartition, LastRead] = field(default_factory=dict)
    retired: Mapping[str, Retired] = field(default_factory=dict)
    schema_id: int | None = None
    names: DecidedNames | None = None
    schemas: Mapping[str, int] = field(default_factory=dict)
    further_names: Mapping[str, DecidedNames] = field(default_factory=dict)
    decoded_of: Mapping[str, str] = field(default_factory=dict)
    unknown_ids: tuple[int | str, ...] = ()
    decoded: str | None = None
    branch: str = ""
    event_time: EventTimes | None = None
    published: Mapping[str, int] = field(default_factory=dict)
    landed: Positions = field(default_factory=dict)
    before_ms: int | None = None
    batch_ms: int | None = None
    parked: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    sequences: Mapping[str, int] | None = None
    coordinator: tuple[str, int] | None = None
    mirror: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last_move(self) -> int | None:
        """`moved`, also for stamps of an earlier version, except their claims."""
        return self.sequence if self.moved is None and self.kind != "claim" else self.moved

    def committed_at(self, sequence: int, before: Stamp | None) -> Self:
        """This stamp for a snapshot of this sequence number, after the stream's stamp `before`."""
        moved = sequence if self.kind != "claim" else before.last_move if before else 0
        return replace(self, sequence=sequence, moved=moved)

    def on_branch(self, branch: str) -> Self:
        """This stamp for a commit to a branch of the table."""
        return replace(self, branch="" if branch == MAIN_BRANCH else branch)

    def claimed(self, epoch: int, generation: str = "") -> Self:
        """This stamp as the next driver's claim: the same positions under a new epoch.

        `rows` and `config` stay: they show whether the previous batch was committed on every target.
        """
        generation = generation or self.generation
        return replace(self._bare(), kind="claim", epoch=epoch, note=None, generation=generation)

    def decided(self, decision: Decision | None) -> Self:
        """This stamp's positions as the start of an answer, without its counts of records."""
        return replace(self._bare(), decision=decision)

    def _bare(self) -> Self:
        event_time = self.event_time.bare() if self.event_time else None
        return replace(self, counts=Counts(), parts={}, decision=None, event_time=event_time, before_ms=None)

    def known_to(self, anchored: Stamp | None) -> Self:
        """This stamp without the topics that the coordinator's newest stamp does not know (any more).

        The coordinator forgets a retired topic with its next batch. A target that rarely receives rows would take a
        later topic of the same name for the former one. The coordinator is committed first in every batch, so no other
        target knows a topic earlier. It knows the topics whose ids it carries, and those with a position, as stamps of
        earlier versions carry no ids.
        """
        if anchored is None:
            return self
        topics = {*anchored.topics, *(p.topic for at in (anchored.start, anchored.position) for p in at)}

        def kept(positions: Positions) -> dict[TopicPartition, int]:
            return {partition: at for partition, at in positions.items() if partition.topic in topics}

        return replace(self, start=kept(self.start), position=kept(self.position), ends=kept(self.ends))

    def under(self, epoch: int) -> Self:
        """The same batch, committed by a later driver from the pending record."""
        return replace(self, epoch=epoch)

    def anchored(self, targets: Mapping[str, str], topics: Mapping[str, str]) -> Self:
        """This stamp with the coordinator's fields: the tables' uuids and Kafka's topic ids."""
        return replace(self, targets=dict(targets), topics=dict(topics))

    def naming_only(self, targets: Collection[str]) -> Self:
        """This stamp without tables that are no longer targets, unless they have rows of its batch.

        An answer or a reset moves the positions of targets only. If the table becomes a target again, its own stamp
        does not count, because the coordinator's stamp does not name it.
        """
        kept = {name: uuid for name, uuid in self.targets.items() if name in targets or self.rows.get(name)}
        return replace(self, targets=kept).with_parked({name: at for name, at in self.parked.items() if name in kept})

    def with_parked(self, parked: Mapping[str, int], held: Mapping[str, int] = MappingProxyType({})) -> Self:
        """This stamp with other suspended targets.

        Args:
            parked: Suspended targets with their times.
            held: Number of dead letters of some of them; for others it stays.
        """
        counts = {**self.held, **held}
        return replace(self, parked=dict(parked), held={name: counts[name] for name in parked if name in counts})

    def as_known(self, newest: Stamp | None) -> Self:
        """This stamp with the targets of the coordinator's newest stamp; a pending record may be older."""
        if newest is None or not self.targets:
            return self
        targets = {name: newest.targets.get(name, uuid) for name, uuid in self.targets.items()}
        held = {**newest.held, **self.held}
        return replace(self, targets=targets).with_parked(
            {name: at for name, at in newest.parked.items() if name in targets}, held
        )

    @property
    def in_bitmaps(self) -> bool:
        """Whether there are too many targets to name them in every stamp."""
        return len(self.targets) > MOST_NAMED

    def to_json(self, directory: TargetDirectory | None = None) -> str:
        """The compact text that snapshots and properties carry.

        Args:
            directory: Directory with an entry for every target. Without it, or if they are few, the targets are named.
        """
        document: dict[str, Any] = {
            "v": FORMAT,
            "stream": self.stream,
            "kind": self.kind,
            "batch": self.batch,
            "epoch": self.epoch,
            "config": self.config,
            "at": pack_positions(self.start, self.position),
        }
        optional = {
            "ends": by_topic(self.ends),
            "through": self.valid_through_ms,
            "rows": dict(self.rows),
            "counts": pack_counts(self.counts),
            "totals": pack_counts(self.totals),
            "targets": dict(self.targets),
            "topics": dict(self.topics),
            "note": self.note,
            "gen": self.generation,
            "seq": self.sequence,
            "parts": pack_parts(self.parts, self.start),
            "decided": pack_decision(self.decision) if self.decision else None,
            "marks": pack_last_reads(at_positions(self.last_reads, self.position)),
            "retired": pack_retired(self.retired),
            "branch": self.branch,
            "event": pack_event_times(self.event_time) if self.event_time else None,
            "published": dict(self.published),
            "landed": by_topic(self.landed),
            "before": self.before_ms,
            "now": self.batch_ms,
            "unknown": list(self.unknown_ids),
            "columns": self.decoded,
            "parked": dict(self.parked),
            "held": dict(self.held),
            "schemas": dict(self.schemas),
            "aliases": {name: pack_names(names) for name, names in self.further_names.items()},
            "decodes": dict(self.decoded_of),
            "coordinator": self.coordinator,
            "mirror": dict(self.mirror),
        }
        if directory is not None and self.in_bitmaps:
            receiving = [name for name, count in self.rows.items() if count]
            optional |= {"rows": None, "targets": None}
            for key in _OF_TABLES:
                optional[key] = directory.by_place(optional[key], self.targets)
            document["of"] = [directory.bitmap(each, self.targets) for each in (self.targets, receiving)]
            for key in _NUMBERED:
                optional[key] = directory.numbered(optional[key], self.targets)
        document |= {key: value for key, value in optional.items() if value}
        names = pack_names(self.names)
        for key, said in (("moved", self.moved), ("schema", self.schema_id), ("failed", self.failed), ("names", names)):
            if said is not None:
                document[key] = said
        return msgspec.json.encode(document).decode()

    @staticmethod
    def from_json(text: str, properties: Mapping[str, str] | None = None) -> Stamp:
        """The inverse of `to_json`.

        Args:
            text: Text from a snapshot or a property.
            properties: Properties of the table, whose directory resolves the targets and rows in bitmaps. Without them
                such a stamp has no targets and rows.

        Raises:
            ValueError: The text is no stamp of a format this version reads.
        """
        document: dict[str, Any] = msgspec.json.decode(text)
        if document.get("v") != FORMAT:
            raise ValueError(f"stamp format {document.get('v')!r} is not {FORMAT}: it was written by another version")
        start, position = unpack_positions(document["at"])
        if "of" in document and properties is not None:
            directory = TargetDirectory.of(properties, document["stream"])
            document["targets"], receiving = (directory.named(each) for each in document["of"])
            document["rows"] = dict.fromkeys(receiving, 1)
            for key in _NUMBERED & document.keys():
                document[key] = directory.by_name(document[key])
            for key in _OF_TABLES & document.keys():
                document[key] = directory.by_table(document[key])
        elif "of" in document:
            document |= {key: {} for key in _OF_TABLES | _NUMBERED}
        return Stamp(
            stream=document["stream"],
            kind=document["kind"],
            batch=document["batch"],
            epoch=document["epoch"],
            config=document["config"],
            start=start,
            position=position,
            ends=from_topics(document.get("ends", {})),
            valid_through_ms=document.get("through"),
            rows=document.get("rows", {}),
            failed=document.get("failed"),
            counts=Counts(*document.get("counts", ())),
            totals=Counts(*document.get("totals", ())),
            targets=document.get("targets", {}),
            topics=document.get("topics", {}),
            note=document.get("note"),
            generation=document.get("gen", ""),
            sequence=document.get("seq", 0),
            parts=unpack_parts(document.get("parts", {}), start),
            decision=unpack_decision(document["decided"]) if "decided" in document else None,
            moved=document.get("moved"),
            last_reads=unpack_last_reads(document.get("marks", {}), position),
            retired=unpack_retired(document.get("retired", {})),
            schema_id=document.get("schema"),
            names=unpack_names(document.get("names")),
            schemas=document.get("schemas", {}),
            further_names={
                name: names
                for name, packed in document.get("aliases", {}).items()
                if (names := unpack_names(packed)) is not None
            },
            decoded_of=document.get("decodes", {}),
            unknown_ids=tuple(document.get("unknown", ())),
            decoded=document.get("columns"),
            branch=document.get("branch", ""),
            event_time=unpack_event_times(document["event"]) if "event" in document else None,
            published=document.get("published", {}),
            landed=from_topics(document.get("landed", {})),
            before_ms=document.get("before"),
            batch_ms=document.get("now"),
            parked=document.get("parked", {}),
            held=document.get("held", {}),
            coordinator=tuple(document["coordinator"]) if "coordinator" in document else None,
            mirror=document.get("mirror", {}),
        )
