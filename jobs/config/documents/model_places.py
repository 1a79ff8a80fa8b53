"""Places of a YAML file in its model: the models and keys that are allowed there."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from jobs.config.documents.base import Location, field_path
from jobs.config.documents.connect_keys import connect_answer
from jobs.config.documents.sentences import suggestion


def models_at(root: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    """Return the models whose mapping is allowed at a place.

    Args:
        root: The model of the whole file.
        location: The place.
    """
    annotations: list[Any] = [root]
    for part in location:
        annotations = [below for annotation in annotations for below in _below(annotation, part)]
    return list(dict.fromkeys(model for annotation in annotations for model in _direct_models(annotation)))


def keys_of(models: Iterable[type[BaseModel]]) -> list[str]:
    """Return the keys of some models."""
    keys: list[str] = []
    for model in models:
        for name, field in model.model_fields.items():
            key = field.alias or name
            keys += keys_of(_models_in(field.annotation)) if key.startswith("@") else [key]
    return list(dict.fromkeys(keys))


def _below(annotation: Any, part: object) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            alias = field.alias or name
            if alias.startswith("@"):
                yield from _below(field.annotation, part)
            elif part in (alias, name):
                yield field.annotation
        return
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (list, tuple, Sequence):
        yield from arguments[:1]
    elif origin in (dict, Mapping):
        yield from arguments[1:]
    else:
        for argument in arguments:
            yield from _below(argument, part)


def _direct_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) not in (list, tuple, dict, Sequence, Mapping):
        for argument in typing.get_args(annotation):
            yield from _direct_models(argument)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def unknown_key(above: Location, key: str, models: Sequence[type[BaseModel]]) -> tuple[str, str | None]:
    """Return the sentence about an unknown key, and the known key that it may mean.

    Args:
        above: Place of the mapping with the key.
        key: The key as written.
        models: Models that are allowed at `above`.
    """
    if (answer := connect_answer(field_path(above), key)) is not None:
        return f"this key of Kafka Connect {answer}", None
    if "." in key and _is_nested(key.split("."), models):
        return f"unknown key; keys are nested, so write {_nested(key.split('.'))}", None
    known = keys_of(models)
    if (near := suggestion(key, known)) is not None:
        return f"unknown key; did you mean '{near}'?", near
    for model in models:
        for name, field in model.model_fields.items():
            if key in keys_of(_models_in(field.annotation)):
                return f"unknown key here; it belongs under '{field.alias or name}'", None
    return f"unknown key; known here: {', '.join(known)}", None


def _is_nested(parts: Sequence[str], models: Sequence[type[BaseModel]]) -> bool:
    annotations: list[Any] = list(models)
    for part in parts:
        annotations = [below for annotation in annotations for below in _below(annotation, part)]
    return bool(annotations)


def _nested(parts: Sequence[str]) -> str:
    first, *rest = parts
    return f"{first}: {_braced(rest)}"


def _braced(parts: Sequence[str]) -> str:
    return f"{{{parts[0]}: {_braced(parts[1:])}}}" if parts else "…"
