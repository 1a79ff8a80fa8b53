"""Changes of a plan: each with its class, who makes it, and the command for what frazil does not do by itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Subject = Literal["file", "table", "position", "driver", "mirror", "dagster", "settings"]
Status = Literal["new", "changed", "removed", "unchanged"]


class ChangeClass(StrEnum):
    """Class of a change by its effect, the least first. The values are part of the JSON form."""

    NOTHING = "no effect"
    """Nothing: the key counts for what is new, or the change is already in effect."""

    METADATA = "metadata only"
    """A table's metadata, or how something is watched and kept. Rows and positions stay."""

    RESTART = "restart"
    """A driver starts, ends or restarts. The stream goes on from its position."""

    REWRITE = "rewrite"
    """Existing rows have to be rebuilt."""

    RESET = "reset"
    """The stream begins at another position: records are read again, or passed over."""

    BREAKING = "breaking"
    """The stream would not start, or would land records twice."""


STOPPING = frozenset({ChangeClass.RESET, ChangeClass.BREAKING})
"""Classes that `frazil apply` refuses: somebody decides about them first."""

ORDER = {each: number for number, each in enumerate(ChangeClass)}


class Doer(StrEnum):
    """Actor that makes a change."""

    NOBODY = "nobody"
    """Nothing is left to do."""

    FRAZIL = "frazil"
    """The stream's next start, batch or merge."""

    APPLY = "apply"
    """`frazil apply`; a driver is also replaced by the supervisor, within seconds."""

    OPERATOR = "operator"
    """A person, by the command of the change."""


class StepAction(StrEnum):
    """Action of `frazil apply` for a change."""

    ALTER = "alter"
    PROPERTIES = "properties"
    START = "start"
    ROLL = "roll"
    END = "end"


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between the files and the live deployment, or other files.

    Attributes:
        stream: The stream's id; None of a change of the settings.
        place: The key of the file with dots, or the name of the table.
        sentence: Sentence about the change, without figures that move by themselves, such as offsets.
        fix: The command for what frazil does not do by itself.
        before: Value on the other side, as JSON has it; secrets are references.
        after: Value of the files, likewise.
        drift: Whether the live deployment changed, instead of the files.
        step: Action of `frazil apply` for the change.
        detail: Offsets, counts and the like. Plans that differ only here count as the same.
    """

    stream: str | None
    subject: Subject
    place: str
    kind: ChangeClass
    doer: Doer
    sentence: str
    fix: str | None = None
    before: Any = None
    after: Any = None
    drift: bool = False
    step: StepAction | None = None
    detail: str = ""

    @property
    def pending(self) -> bool:
        """Whether something is left to do."""
        return self.doer is not Doer.NOBODY

    @property
    def stops(self) -> bool:
        """Whether somebody has to decide before anything is applied to the stream."""
        return self.pending and self.kind in STOPPING

    @property
    def identity(self) -> str:
        """Text that two plans of the same files and the same live facts have alike."""
        parts = [self.stream, self.subject, self.place, self.kind, self.doer, self.sentence, self.before, self.after]
        return json.dumps(parts, sort_keys=True, default=str)

    @property
    def facts(self) -> dict[str, Any]:
        """The change as JSON."""
        return {
            "subject": self.subject,
            "place": self.place,
            "class": self.kind.value,
            "by": self.doer.value,
            "sentence": self.sentence,
            "next": self.fix,
            "before": self.before,
            "after": self.after,
            "drift": self.drift,
            "step": self.step and self.step.value,
            "detail": self.detail,
        }

    @staticmethod
    def from_facts(stream: str | None, facts: Mapping[str, Any]) -> Change:
        """The inverse of `facts`.

        Raises:
            KeyError, ValueError: The mapping is no change.
        """
        step = facts["step"]
        return Change(
            stream,
            facts["subject"],
            facts["place"],
            ChangeClass(facts["class"]),
            Doer(facts["by"]),
            facts["sentence"],
            facts["next"],
            facts["before"],
            facts["after"],
            facts["drift"],
            None if step is None else StepAction(step),
            facts["detail"],
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be looked at.

    Attributes:
        part: `catalog`, `kafka`, `state` or `file`.
    """

    part: str
    sentence: str
    fix: str | None = None

    @property
    def facts(self) -> dict[str, str | None]:
        """Unknown part as JSON."""
        return {"part": self.part, "sentence": self.sentence, "next": self.fix}


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Plan of one stream."""

    stream: str
    status: Status
    changes: tuple[Change, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    @property
    def pending(self) -> tuple[Change, ...]:
        """The changes of which something is left to do."""
        return tuple(each for each in self.changes if each.pending)

    @property
    def stops(self) -> tuple[Change, ...]:
        """The changes that somebody has to decide about first."""
        return tuple(each for each in self.changes if each.stops)

    @property
    def facts(self) -> dict[str, Any]:
        """The stream's part of the plan as JSON."""
        return {
            "stream": self.stream,
            "status": self.status,
            "changes": [each.facts for each in self.changes],
            "unknown": [each.facts for each in self.unknown],
        }


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """Plan of a deployment.

    Attributes:
        made_at: Time when the plan was made, as ISO 8601 in UTC.
        against: Folder or Git revision that the files are compared with; None for the live deployment.
        streams: Plans of the streams, in order.
        settings: Changes of the settings.
        problems: Problems of files, as sentences with file and line. Their streams are not planned.
        unknown: Parts of the deployment that could not be read.
        supervised: Whether somebody supervises the deployment, and rolls out changed files by itself.
    """

    made_at: str
    against: str | None
    streams: tuple[StreamPlan, ...]
    settings: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    supervised: bool = False

    @property
    def changes(self) -> Iterator[Change]:
        """Changes of the settings, then those of the streams."""
        yield from self.settings
        for stream in self.streams:
            yield from stream.changes

    @property
    def everything_unknown(self) -> list[Unknown]:
        """Parts that could not be read, including those of streams."""
        return [*self.unknown, *(each for stream in self.streams for each in stream.unknown)]

    @property
    def pending(self) -> list[Change]:
        """The changes of which something is left to do."""
        return [each for each in self.changes if each.pending]

    @property
    def stops(self) -> bool:
        """Whether somebody has to decide first, or something could not be looked at."""
        return any(each.stops for each in self.changes) or bool(self.everything_unknown)

    @property
    def counts(self) -> dict[ChangeClass, int]:
        """Numbers of pending changes by class, the gravest first."""
        return counted(self.pending)

    @property
    def facts(self) -> dict[str, Any]:
        """The plan as JSON; `SavedPlan` reads it."""
        return {
            "plan": 1,
            "made_at": self.made_at,
            "against": self.against,
            "supervised": self.supervised,
            "pending": len(self.pending),
            "classes": {kind.value: count for kind, count in self.counts.items()},
            "settings": [each.facts for each in self.settings],
            "streams": [each.facts for each in self.streams],
            "problems": list(self.problems),
            "unknown": [each.facts for each in self.unknown],
        }


def counted(changes: Iterable[Change]) -> dict[ChangeClass, int]:
    """Numbers of changes by class, the gravest first."""
    counts = Counter(each.kind for each in changes)
    return {kind: counts[kind] for kind in sorted(counts, key=ORDER.__getitem__, reverse=True)}


@dataclass(frozen=True, slots=True)
class Saved:
    """A plan that was saved as JSON, as far as `frazil apply` needs it.

    Attributes:
        changes: The identities of all its changes.
    """

    made_at: str
    against: str | None
    changes: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Saved:
        """A plan's JSON document.

        Raises:
            KeyError, TypeError, ValueError: The mapping is no plan.
        """
        if facts["plan"] != 1:
            raise ValueError(f"plan {facts['plan']}")
        pairs = [(None, each) for each in facts["settings"]]
        pairs += [(stream["stream"], each) for stream in facts["streams"] for each in stream["changes"]]
        changes = frozenset(Change.from_facts(stream, each).identity for stream, each in pairs)
        return Saved(facts["made_at"], facts["against"], changes)

    def new_in(self, plan: DeploymentPlan) -> list[Change]:
        """The changes of a plan that was made now, and that this one does not have."""
        return [each for each in plan.pending if each.identity not in self.changes]
