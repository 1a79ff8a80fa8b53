"""Base model of all YAML files (frozen, no unknown keys, errors with their field), and the hash of the rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, Strict, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class LineInText:
    """Last part of a place within a text of several lines: the number of line breaks before the place."""

    lines_before: int


Location = tuple[int | str | LineInText, ...]
Problem = tuple[Location, str]
"""A place in a YAML file, and what is wrong there."""
Problems = Iterator[Problem]

Check = Callable[[], Iterable[Problem]]
"""One independent check of a file, or of a part of it."""

MAX_INT64 = 2**63 - 1
AnyInt = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]


class MissingPartError(AssertionError):
    """A check reads a part of a file that is itself wrong, so the check cannot decide.

    It is an AssertionError because pydantic takes that as a problem of the value. The checks themselves would catch a
    ValueError.
    """


def collect(*checks: Check) -> list[Problem]:
    """Runs independent checks and returns all their problems. A check that reads a wrong part reports nothing."""
    problems: list[Problem] = []
    for check in checks:
        try:
            for problem in check():
                problems.append(problem)  # noqa: PERF402 - those before a missing part count
        except MissingPartError:
            continue
    return problems


class SpecModel(BaseModel):
    """A frozen part of a YAML file. Unknown keys are refused; pydantic's own messages never repeat what was written.

    A model whose fields may disagree reports it by `_problems`, or by several independent `_checks`. A text in place of
    the mapping is the value of the field `_short`. A field without a value belongs to a partial model
    (`jobs.config.documents.partial`), and reading it raises `MissingPartError`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, serialize_by_alias=True, allow_inf_nan=False
    )
    _short: ClassVar[str] = ""
    example: ClassVar[str] = ""
    """Example of the block for messages, in YAML: its required keys, and the keys used most."""

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, data: Any) -> Any:
        return {cls._short: data} if cls._short and isinstance(data, str) else data

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if problems := collect(*self._checks()):
            raise problems_at(problems)
        return self

    def _checks(self) -> Iterable[Check]:
        """The independent checks of the model."""
        return (self._problems,)

    def _problems(self) -> Problems:
        """Problems between fields that disagree, each with its place below the model."""
        return iter(())

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in type(self).__pydantic_fields__:
                raise MissingPartError(name)
            return super().__getattr__(name)


def field_path(location: Location) -> str:
    """Writes a place in a YAML file as people do: ``source.topics[0]``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif isinstance(part, str):
            path += f".{part}" if path else part
    return path


def problems_at(problems: list[tuple[Location, str]]) -> PydanticCustomError:
    """Makes one pydantic error of problems at several places below the value of a model that is being validated.

    A validator of a whole model knows the fields that disagree, but pydantic would place its error at the model.
    """
    message = "; ".join(f"{path}: {text}" if (path := field_path(at)) else text for at, text in problems)
    return PydanticCustomError("frazil_problems", "{message}", {"message": message, "problems": problems})


def local_path(value: object, info: ValidationInfo) -> Path:
    """Makes a path absolute: ``~`` is the home folder, a relative path starts at the folder of its YAML file."""
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError("must be a path")
    text = str(value)
    if "${" in text:
        raise ValueError("is not a secret; ${env:NAME} is not possible in a path")
    if "://" in text:
        raise ValueError("must be a path of this machine, not a URI")
    base = (info.context or {}).get("base")
    expanded = Path(text).expanduser()
    return Path(os.path.normpath((base / expanded) if base else expanded.absolute()))


LocalPath = Annotated[Path, PlainValidator(local_path), PlainSerializer(str, return_type=str)]


@dataclass(frozen=True, slots=True)
class ChangesRows:
    """Mark of a model's field whose value changes the rows that a record becomes.

    The hashed document never changes its form, because an upgrade would then restart every stream of every deployment.
    So a later field is left out at its default, and a moved field keeps its former place.

    Args:
        place: Place of the value in the hashed document; by default its place in the model.
        written: Returns the hashed value, from the whole stream and the field's value; by default the value as JSON.
        unless: Value at which the field is left out; by default the field always counts.
    """

    place: tuple[str, ...] = ()
    written: Callable[[Any, Any], Any] | None = None
    unless: object = ...


def config_hash(spec: SpecModel) -> str:
    """Return the hash, twelve hexadecimal digits, of all fields of a stream that change its rows."""
    meaning: dict[str, Any] = {}
    for path, marker, value in _marked(spec):
        if value == marker.unless:
            continue
        *blocks, name = marker.place or path
        block = meaning
        for each in blocks:
            block = block.setdefault(each, {})
        block[name] = _hashed(spec, marker, value)
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def row_meanings(spec: SpecModel) -> dict[str, Any]:
    """Return the hashed value of each field that changes a stream's rows, by the field's key with dots.

    Different ways to write the same give equal results. A field that is left out of the hash is left out here.
    """
    counted = ((path, marker, value) for path, marker, value in _marked(spec, keys=True) if value != marker.unless)
    return {".".join(path): _hashed(spec, marker, value) for path, marker, value in counted}


def _hashed(spec: SpecModel, marker: ChangesRows, value: Any) -> Any:
    return marker.written(spec, value) if marker.written else _plain(value)


def _marked(
    model: SpecModel, path: tuple[str, ...] = (), *, keys: bool = False
) -> Iterator[tuple[tuple[str, ...], ChangesRows, Any]]:
    """Yield the marked fields with their paths: by their hashed names, or by the keys of the file."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        here = (*path, (field.alias or name) if keys else name)
        yield from ((here, each, value) for each in field.metadata if isinstance(each, ChangesRows))
        if isinstance(value, SpecModel):
            yield from _marked(value, here, keys=keys)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, SpecModel) else value
