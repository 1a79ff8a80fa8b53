"""Format of one's own: values are whatever a function of an installed package reads."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.formats.decoder import Format, UnknownField, ValueDecoder
from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.own.decoder import DECODER, OwnDecoder, WrongAnswerError
from jobs.formats.own.entry_point import NoSuchDecoderError


def _decoder(spec: DecoderSpec) -> ValueDecoder:
    return OwnDecoder(spec)


def own_decoder_problem(spec: DecoderSpec) -> str | None:
    """Why a decoder of one's own does not give the columns that are declared; None if it does."""
    try:
        OwnDecoder(spec).check()
    except NoSuchDecoderError as problem:
        return str(problem)
    except WrongAnswerError as problem:
        return f"the decoder `{spec.options[DECODER]}` {problem}"
    return None


def _unknown_fields(
    _spec: DecoderSpec, _values: pa.BinaryArray, _rows: Iterable[int], _paths: Iterable[str]
) -> dict[str, UnknownField]:
    return {}


OWN = Format("own", _decoder, _decoder, probe=b"", unknown_fields=_unknown_fields, json_fields=False)
