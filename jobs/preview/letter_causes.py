"""Causes of previewed dead letters: those with the same class, stage, field and need have one thing to correct."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobs.deadletter.page import Cause
from jobs.formats.problems import without_value
from jobs.preview.record import PreviewedRecord

_INDEX = re.compile(r"\[\d+\]")


def letter_causes(records: Iterable[PreviewedRecord]) -> dict[Cause, list[PreviewedRecord]]:
    """The records that would be dead letters, by their cause; the most frequent first."""
    found: dict[Cause, list[PreviewedRecord]] = {}
    for each in records:
        if (letter := each.letter) is not None:
            field, needs = _INDEX.sub("[]", letter.field or ""), without_value(letter.message or "") or ""
            found.setdefault(Cause(letter.error_class, letter.stage, field, needs), []).append(each)
    return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))
