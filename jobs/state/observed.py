"""The former name of `jobs.state.document_age`, and nothing else.

A driver or a keeper of an earlier release imports it when it first removes a document, or first judges the age of one;
its code may have been replaced under it by then.
"""

from __future__ import annotations

from pathlib import Path

from jobs.state import document_age
from jobs.system.boot import boot_clock, boot_id


def forget(path: Path) -> None:
    """`document_age.forget`."""
    document_age.forget(path)


def unchanged_for(path: Path, content: bytes) -> float:
    """`document_age.unchanged_for`, on the clock of this boot."""
    return document_age.unchanged_for(path, content, boot_id(), boot_clock())
