"""Row changes: what steps have in common whose rows may lack values, and may tell their former keys in headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jobs.formats.decoder_spec import DecoderSpec
from jobs.transform.transform import Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges(Transform):
    """Records become rows of a changelog.

    Attributes:
        unavailable: The text that stands for a value which the source did not send.
        key: What the row calls a key that is a single value.
        beside: Columns that records have beside the event, or the row: of headers, and of what no column takes.
        keys: What decodes keys, for those that headers hold.
    """

    name: ClassVar[str] = "changes"
    unavailable: str = "__debezium_unavailable_value"
    key: str | None = None
    beside: tuple[str, ...] = ()
    keys: DecoderSpec | None = None

    @property
    def asks(self) -> frozenset[str]:
        """The headers, one of which may hold the former key of a row."""
        return frozenset({"headers"})
