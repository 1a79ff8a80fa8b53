"""Custom decoder: a function of an installed package, from values to an Arrow batch with a row for each.

The function gets the values of a block as a `pyarrow.BinaryArray` without nulls, the schema of the rows, and the
options of the stream's file by their names. It returns a batch of that schema with as many rows, in their order; and
optionally a mapping from the index of a value that it refuses to the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    Decoded,
    Failure,
    Format,
    UnknownField,
    ValueDecoder,
)
from jobs.records.formats.interface.decoder_spec import DecoderSpec, rows_of
from jobs.records.formats.interface.problems import NULL_IN_REQUIRED, OWN_CODE_FAILED, OWN_CODE_REFUSED
from jobs.records.schema.arrow_schema import rows_arrow_schema

DECODER = "decoder"
"""The option that names the entry point."""
OPTIONS = "options"
"""The option that holds the function's own options."""


class WrongAnswerError(Exception):
    """A decoder returned something else than it must."""


class OwnDecoder:
    """Decode values by a function of an installed package. A value that it raises for fails alone.

    Args:
        spec: Spec with the name of the entry point, the options and the columns.

    Raises:
        NoSuchDecoderError: The function does not exist.
    """

    def __init__(self, spec: DecoderSpec) -> None:
        self._name: str = spec.options[DECODER]
        self._options: Mapping[str, Any] = dict(spec.options.get(OPTIONS) or {})
        self._schema: pa.Schema = rows_arrow_schema(rows_of(spec))
        self._function = loaded(self._name)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure.

        Raises:
            OSError, MemoryError: The function raises that: the fault of no record.
        """
        there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        tombstones = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        given = values if len(there) == len(values) else values.take(pa.array(there))
        batches: list[pa.RecordBatch] = []
        kept: list[np.ndarray] = []
        failures: list[Failure] = []
        self._decode(given, there, batches, kept, failures)
        rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=self._schema)
        return Decoded(rows, np.concatenate([np.zeros(0, np.int64), *kept]), failures, tombstones, {})

    def check(self) -> None:
        """Check that the function accepts a block without values, and returns the declared columns.

        Raises:
            WrongAnswerError: It does not.
        """
        try:
            self._answer(pa.array([], pa.binary()))
        except WrongAnswerError:
            raise
        except Exception as problem:
            raise WrongAnswerError(f"raises {type(problem).__name__} for a block without values: {problem}") from None

    def _decode(
        self,
        values: pa.BinaryArray,
        at: np.ndarray,
        batches: list[pa.RecordBatch],
        kept: list[np.ndarray],
        failures: list[Failure],
    ) -> None:
        """Decode a block; it is halved until the bad values stand alone."""
        count = len(values)
        if not count:
            return
        try:
            batch, refused = self._answer(values)
        except (OSError, MemoryError):
            raise
        except Exception as problem:
            if count > 1:
                for start, stop in ((0, count // 2), (count // 2, count)):
                    self._decode(values.slice(start, stop - start), at[start:stop], batches, kept, failures)
                return
            why = (
                str(problem) if isinstance(problem, WrongAnswerError) else f"raised {type(problem).__name__}: {problem}"
            )
            failures.append(self._failure(int(at[0]), OWN_CODE_FAILED, why))
            return
        bad = {
            row: self._failure(int(at[row]), OWN_CODE_REFUSED, f"refuses the value: {why}")
            for row, why in refused.items()
        }
        for field, array in zip(self._schema, batch.columns, strict=True):
            if not field.nullable and array.null_count:
                for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
                    bad.setdefault(row, _null(int(at[row]), field.name))
        failures += [bad[row] for row in sorted(bad)]
        good = np.setdiff1d(np.arange(count), np.array(sorted(bad), np.int64)) if bad else np.arange(count)
        if len(good):
            batches.append(batch.take(pa.array(good)) if bad else batch)
            kept.append(at[good])

    def _answer(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, dict[int, str]]:
        given: Any = self._function(values, self._schema, **self._options)
        batch, refused = given if isinstance(given, tuple) else (given, {})
        if not isinstance(batch, pa.RecordBatch) or not isinstance(refused, Mapping):
            raise WrongAnswerError("gives no pyarrow.RecordBatch, or one with a mapping from values to reasons")
        if batch.num_rows != len(values):
            raise WrongAnswerError(f"gives another number of rows: {batch.num_rows} of {len(values)}")
        if batch.schema.names != self._schema.names or batch.schema.types != self._schema.types:
            raise WrongAnswerError("gives other columns than decode.schema declares, or of other types")
        reasons = {int(row): str(why) for row, why in refused.items()}
        if any(not 0 <= row < len(values) for row in reasons):
            raise WrongAnswerError("refuses a value that it was not given")
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._schema), reasons

    def _failure(self, row: int, error_class: str, why: str) -> Failure:
        return Failure(row, DECODE_VALUE, error_class, f"the decoder `{self._name}` {why}", None)


def _null(row: int, column: str) -> Failure:
    return Failure(row, DECODE_VALUE, NULL_IN_REQUIRED, "needs a value, found null", f"$.{column}")


def _decoder(spec: DecoderSpec) -> ValueDecoder:
    return OwnDecoder(spec)


def own_decoder_problem(spec: DecoderSpec) -> str | None:
    """Return why a custom decoder does not give the declared columns; None if it does."""
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


GROUP = "frazil.decoders"
"""The group of entry points in which a package names its decoders."""


class NoSuchDecoderError(Exception):
    """No decoder of a name can be used here; the message says why, and what to do."""


@lru_cache(maxsize=64)
def loaded(name: str) -> Callable[..., Any]:
    """Return the function behind a name.

    Raises:
        NoSuchDecoderError: No package that is installed here declares it, several do, or it cannot be imported.
    """
    found = _declared(name)
    try:
        function = found.load()
    except Exception as problem:
        raise NoSuchDecoderError(
            f"the decoder `{name}`, which is `{found.value}`, cannot be imported here "
            f"({type(problem).__name__}: {problem}); install its package wherever frazil runs"
        ) from None
    if not callable(function):
        raise NoSuchDecoderError(f"the decoder `{name}`, which is `{found.value}`, is no function")
    return function


@lru_cache(maxsize=64)
def version_of(name: str) -> str:
    """Return the package that declares a decoder, with its version: another version may give other rows.

    Raises:
        NoSuchDecoderError: As for `loaded`.
    """
    package = _declared(name).dist
    if package is None:
        raise NoSuchDecoderError(f"the decoder `{name}` belongs to no installed package")
    return f"{package.name} {package.version}"


def _declared(name: str) -> EntryPoint:
    every = entry_points(group=GROUP)
    # One package may be found at two places of the path; the first counts.
    found = {each.value: each for each in reversed(tuple(every)) if each.name == name}
    if not found:
        there = ", ".join(sorted({each.name for each in every})) or "none"
        raise NoSuchDecoderError(
            f"no package that is installed here declares a decoder `{name}` as an entry point of {GROUP}; there are: "
            f"{there}"
        )
    if len(found) > 1:
        raise NoSuchDecoderError(f"several packages declare a decoder `{name}`: {', '.join(sorted(found))}")
    return next(iter(found.values()))
