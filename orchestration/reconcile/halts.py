"""Reasons for which the supervisor halts a stream: what happened, what is safe, and the next command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Halt(StrEnum):
    """Why the supervisor leaves a stream to an operator."""

    ANSWER_NEEDED = "answer_needed"
    FAILED_REPEATEDLY = "failed_repeatedly"
    FENCED_REPEATEDLY = "fenced_repeatedly"
    FILE_INVALID = "file_invalid"
    FILES_UNREADABLE = "files_unreadable"
    NOT_LAUNCHABLE = "not_launchable"
    STATE_UNREADABLE = "state_unreadable"


@dataclass(frozen=True, slots=True)
class HaltWords:
    """The reference's text about the reason of a halt.

    Attributes:
        what: What happened, in a sentence.
        safe: What is safe until an operator acts.
        next: The next command, `S` for the stream.
    """

    what: str
    safe: str
    next: str


_COMMITTED = "The tables hold what was committed, and no driver runs."
_RUNS_ON = "A driver that runs goes on with the configuration that was launched."

HALTS: Mapping[Halt, HaltWords] = MappingProxyType(
    {
        Halt.ANSWER_NEEDED: HaltWords(
            "The driver ended with a stop, so starting it again would not help.",
            _COMMITTED,
            "the command that `frazil status S` shows, then `frazil start S`",
        ),
        Halt.FAILED_REPEATEDLY: HaltWords(
            "Drivers failed more than `restart.max_restarts` times in a row, without a committed batch between them.",
            _COMMITTED,
            "correct the cause that `frazil status S` shows, then `frazil start S`",
        ),
        Halt.FENCED_REPEATEDLY: HaltWords(
            "Another deployment or host took the stream over again and again.",
            "One driver at a time commits, whoever it is.",
            "end the stream's drivers elsewhere, then `frazil start S`",
        ),
        Halt.FILE_INVALID: HaltWords("The stream's file has problems.", _RUNS_ON, "`frazil validate`"),
        Halt.FILES_UNREADABLE: HaltWords(
            "The folder `streams/` is missing, empty or unreadable.", _RUNS_ON, "bring the folder back"
        ),
        Halt.NOT_LAUNCHABLE: HaltWords(
            "The stream's file has problems, and the configuration of the last launch cannot be launched any more.",
            _COMMITTED,
            "`frazil validate`",
        ),
        Halt.STATE_UNREADABLE: HaltWords(
            "A document of the stream's state cannot be read.", _RUNS_ON, "the command that `frazil status S` shows"
        ),
    }
)
