"""The order of one partition's changes, one change at a time: what the kernels are held against."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.mirrors.fold.log_scan import SLACK_US


@dataclass(frozen=True)
class Change:
    """What a scan looks at."""

    offset: int
    op: str = "u"
    at: int | None = 0
    position: str | None = None
    lineage: str | None = None


@dataclass
class Log:
    """One partition, read from its beginning."""

    generation: int = 0
    lineage: str | None = None
    position: str | None = None
    at: int | None = None
    tokens: dict[int, str] = field(default_factory=dict)
    repeats: set[int] = field(default_factory=set)
    restored: tuple[int, str, str, bool] | None = None
    floor: str = ""

    def see(self, change: Change) -> None:
        if self.restored:
            return
        if change.lineage is not None and change.lineage != self.lineage:
            if self.lineage is not None:
                self.generation += 1
                self.position = self.at = None
            self.lineage = change.lineage
        position = change.position if change.position is not None else self.position
        if change.position is not None and self.position is not None and change.position < self.position:
            if change.at is None or self.at is None:
                self.restored = (change.offset, change.position, self.position, False)
                return
            if change.at > self.at + SLACK_US:
                self.restored = (change.offset, change.position, self.position, True)
                return
            self.repeats.add(change.offset)
        elif change.position is not None:
            self.position = change.position
            self.at = max((each for each in (self.at, change.at) if each is not None), default=None)
        kind = "0" if change.op == "r" and change.position is not None else "1"
        token = f"{self.generation:04x}.{position or '-'}.{kind}.{change.offset:016x}"
        self.tokens[change.offset] = token
        if change.op == "t" and change.offset not in self.repeats:
            self.floor = max(self.floor, token)

    def kept(self, changes: list[Change]) -> dict[int, str]:
        """The tokens of the changes of rows that count."""
        return {
            each.offset: self.tokens[each.offset]
            for each in changes
            if each.op != "t" and each.offset not in self.repeats and self.tokens[each.offset] >= self.floor
        }
