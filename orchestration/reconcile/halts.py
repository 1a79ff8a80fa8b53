"""Reasons for which the supervisor halts a stream: what happened, what is safe, and the next command."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

_COMMITTED = "The tables hold what was committed, and no driver runs."
_RUNS_ON = "A driver that runs goes on with the configuration that was launched."


class Halt(StrEnum):
    """Reason why the supervisor leaves a stream to an operator.

    Attributes:
        what: What happened, in a sentence.
        safe: What is safe until an operator acts.
        next_command: The next command, `S` for the stream.
    """

    what: str
    safe: str
    next_command: str

    ANSWER_NEEDED = (
        "answer_needed",
        "The driver ended with a stop, so starting it again would not help.",
        _COMMITTED,
        "the command that `frazil status S` shows, then `frazil start S`",
    )
    FAILED_REPEATEDLY = (
        "failed_repeatedly",
        "Drivers failed more than `restart.max_restarts` times in a row, without a committed batch between them.",
        _COMMITTED,
        "correct the cause that `frazil status S` shows, then `frazil start S`",
    )
    FENCED_REPEATEDLY = (
        "fenced_repeatedly",
        "Another deployment or host took the stream over again and again.",
        "Only one driver commits at a time.",
        "end the stream's drivers elsewhere, then `frazil start S`",
    )
    FILE_INVALID = ("file_invalid", "The stream's file has problems.", _RUNS_ON, "`frazil validate`")
    FILES_UNREADABLE = (
        "files_unreadable",
        "The folder `streams/` is missing, empty or unreadable.",
        _RUNS_ON,
        "restore the folder",
    )
    NOT_LAUNCHABLE = (
        "not_launchable",
        "The stream's file has problems, and the configuration of the last launch cannot be launched any more.",
        _COMMITTED,
        "`frazil validate`",
    )
    STATE_UNREADABLE = (
        "state_unreadable",
        "A document of the stream's state cannot be read.",
        _RUNS_ON,
        "the command that `frazil status S` shows",
    )

    def __new__(cls, code: str, what: str, safe: str, next_command: str) -> Self:
        """A member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.what, member.safe, member.next_command = what, safe, next_command
        return member
