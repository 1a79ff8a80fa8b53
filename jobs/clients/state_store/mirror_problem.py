"""Problem of a mirror: why the newest merge beside a driver was not made, noted for whoever asks how the mirror is."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings


class MirrorProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a merge was not made.

    Attributes:
        at: Seconds since 1970.
        problem: In a sentence.
        fix: What to do about it.
    """

    at: float
    problem: str
    fix: str | None = None


def note_problem(settings: Settings, stream: str, mirror: str, problem: str, fix: str | None) -> None:
    """Note why a merge was not made; what cannot be written is lost, for the log has it."""
    noted = MirrorProblem(datetime.now(UTC).timestamp(), problem, fix)
    try:
        stream_folder(settings, stream).store.put(_name(mirror), msgspec.json.encode(noted), durable=False)
    except OSError:
        return


def forget_problem(settings: Settings, stream: str, mirror: str) -> None:
    """Note that a merge was made, or that there was none to make."""
    try:
        stream_folder(settings, stream).store.delete(_name(mirror))
    except OSError:
        return


def noted_problem(settings: Settings, stream: str, mirror: str) -> MirrorProblem | None:
    """Why the newest merge was not made; None if it was, or if nothing is noted."""
    try:
        found = stream_folder(settings, stream).store.get(_name(mirror))
        return decode_json(found, MirrorProblem) if found else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _name(mirror: str) -> str:
    return f"mirror-{mirror}.json"
