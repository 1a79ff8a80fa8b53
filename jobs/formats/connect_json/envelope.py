"""Envelope of Connect's JSON: an object with exactly the members `schema` and `payload`, taken apart.

An envelope's frame is all of its bytes but the payload's. Records of one writer schema mostly have the same frame, so
that the payloads of many are cut out at once.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from jobs.formats.json.errors import problem_of
from jobs.formats.json.keys import check_depth
from jobs.formats.problems import BAD_ENVELOPE, EMPTY_VALUE, INVALID_UTF8, TOO_DEEP, ValueProblem
from jobs.schema.declared import StructType
from jobs.system.typed_json import typed_decoder

NO_SCHEMA = b"null"
"""The schema of a payload that has none."""

_NEEDED = "needs an object with the members schema and payload, and no other"


class Envelope(NamedTuple):
    """An envelope.

    Attributes:
        schema: JSON, as it was written.
        payload: JSON, as it was written.
    """

    schema: bytes
    payload: bytes


class Frame(NamedTuple):
    """What stands around the payload of an envelope; with any one JSON value in between it is one of this schema."""

    schema: bytes
    before: bytes
    behind: bytes


class _Members(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_members = typed_decoder(_Members).decode


def read_envelope(record: bytes) -> Envelope:
    """Takes an envelope apart. A member that comes twice counts with its last value.

    Raises:
        ValueProblem: It is something else (bad_envelope), or empty_value, invalid_utf8, malformed_json or too_deep.
    """
    if not record.strip(b" \t\r\n"):
        raise ValueProblem(EMPTY_VALUE, f"{_NEEDED}, found nothing")
    try:
        record.decode()
        members = _members(record)
    except UnicodeDecodeError as error:
        message = f"needs UTF-8, found 0x{record[error.start]:02x} at byte {error.start} ({error.reason})"
        raise ValueProblem(INVALID_UTF8, message) from None
    except RecursionError:
        check_depth(record)
        raise ValueProblem(TOO_DEEP, "needs JSON that is nested less deep") from None
    except msgspec.ValidationError as error:
        raise ValueProblem(BAD_ENVELOPE, f"{_NEEDED}, found {_found(str(error))}") from None
    except msgspec.DecodeError as error:
        raise problem_of(str(error), StructType(())) from None
    return Envelope(bytes(members.schema).strip(), bytes(members.payload).strip())


def _found(text: str) -> str:
    if "unknown field" in text:
        return "another one"
    if "missing required field" in text:
        return "neither or one of them"
    return problem_of(text, StructType(())).message.rpartition(", found ")[2]


def frame_of(record: bytes, envelope: Envelope) -> Frame | None:
    """The frame of an envelope, proven to be one; None if it cannot be told.

    With two payloads in turn in the place of its own the frame has to be an envelope of this schema with that payload:
    so the place is where the payload's value stands, and any other JSON value may stand there.
    """
    for at in dict.fromkeys((record.rfind(envelope.payload), record.find(envelope.payload))):
        frame = Frame(envelope.schema, record[:at], record[at + len(envelope.payload) :])
        if all(_holds(frame, payload) for payload in (b"0", b"1")):
            return frame
    return None


def _holds(frame: Frame, payload: bytes) -> bool:
    try:
        return read_envelope(frame.before + payload + frame.behind) == (frame.schema, payload)
    except ValueProblem:
        return False
