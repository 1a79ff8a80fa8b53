"""Recorded problem of a mirror: why the last merge beside a driver failed, for the mirror's status."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings


class MirrorProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a merge failed.

    Attributes:
        at: Time in seconds since 1970.
        problem: Problem in a sentence.
        fix: Next command.
    """

    at: float
    problem: str
    fix: str | None = None


def note_problem(settings: Settings, stream: str, mirror: str, problem: str, fix: str | None) -> None:
    """Record why a merge failed; if the store cannot be written, only the log has it."""
    noted = MirrorProblem(datetime.now(UTC).timestamp(), problem, fix)
    try:
        stream_folder(settings, stream).store.put(_name(mirror), msgspec.json.encode(noted), durable=False)
    except OSError:
        return


def forget_problem(settings: Settings, stream: str, mirror: str) -> None:
    """Remove the record after a merge, or if there was nothing to merge."""
    try:
        stream_folder(settings, stream).store.delete(_name(mirror))
    except OSError:
        return


def noted_problem(settings: Settings, stream: str, mirror: str) -> MirrorProblem | None:
    """Return why the last merge failed; None if there is no record."""
    try:
        found = stream_folder(settings, stream).store.get(_name(mirror))
        return decode_json(found, MirrorProblem) if found else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _name(mirror: str) -> str:
    return f"mirror-{mirror}.json"
