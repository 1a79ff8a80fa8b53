"""Configuration hash of a stream: the fields that say they change its rows, and the hash of their values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jobs.spec.base import SpecModel


@dataclass(frozen=True, slots=True)
class ChangesRows:
    """Marks a field of a model: whoever changes its value changes what rows a record becomes.

    What is hashed stays as it is for good, or an upgrade would roll every stream of every deployment. So a field that
    comes later is left out at its default, and one that moves keeps its former place.

    Args:
        place: Where the value stands in what is hashed; without it where the model has it.
        written: What is hashed, of the whole stream and the field's value; without it the value as JSON.
        unless: The value at which the field is left out; without it the field always counts.
    """

    place: tuple[str, ...] = ()
    written: Callable[[Any, Any], Any] | None = None
    unless: object = ...


def config_hash(spec: SpecModel) -> str:
    """Twelve hexadecimal digits of all fields of a stream that change its rows, and of nothing else."""
    meaning: dict[str, Any] = {}
    for path, marker, value in _marked(spec):
        if value == marker.unless:
            continue
        *blocks, name = marker.place or path
        block = meaning
        for each in blocks:
            block = block.setdefault(each, {})
        block[name] = marker.written(spec, value) if marker.written else _plain(value)
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _marked(model: SpecModel, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ChangesRows, Any]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        here = (*path, name)
        yield from ((here, each, value) for each in field.metadata if isinstance(each, ChangesRows))
        if isinstance(value, SpecModel):
            yield from _marked(value, here)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, SpecModel) else value
