"""What `frazil validate` has found: what agrees, what is wrong, what could not be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "wrong", "unchecked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        stream: The stream's id; None where it concerns all.
        subject: `spec`, `settings`, `kafka`, `topic`, `catalog` or `table`.
        fix: What to do, where something can be done.
    """

    stream: str | None
    subject: str
    verdict: Verdict
    sentence: str
    fix: str | None = None
