"""Partial models: the valid parts of an invalid YAML file, on which all independent checks run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

from pydantic_core import CoreConfig, CoreSchema, SchemaValidator, ValidationError

from jobs.config.documents.base import LineInText, Location, MissingPartError, Problem, SpecModel, collect

ModelT = TypeVar("ModelT", bound=SpecModel)


class _Missing:
    """Value of a wrong part. Any access to it ends the check."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise MissingPartError

    __getattr__ = __bool__ = __iter__ = __len__ = __getitem__ = __contains__ = __call__ = __str__ = __format__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __int__ = __float__ = __fspath__ = _refuse


MISSING = _Missing()


class RightItems(tuple[Any, ...]):
    """The valid items of a list.

    Attributes:
        places: Index of each item in the file's list.
    """

    places: tuple[int, ...]


def partial_model(model: type[ModelT], data: object, context: Mapping[str, Any]) -> ModelT | None:
    """Validates data and leaves out wrong parts. Checks between fields do not run.

    Returns:
        The model. Reading a wrong part of it raises `MissingPartError`; lists are `RightItems`. None if the data is no
        mapping.
    """
    try:
        return _lenient_validator(model).validate_python(data, context=dict(context))
    except ValidationError:
        return None


def partial_problems(model: SpecModel) -> list[Problem]:
    """Runs the checks of a partial model and of all models in it. A part with a problem counts as wrong above it."""
    return list(_walk(model, ()))


@cache
def _lenient_validator(model: type[SpecModel]) -> SchemaValidator:
    schema = _lenient(model.__pydantic_core_schema__)
    return SchemaValidator(schema, CoreConfig(extra_fields_behavior="ignore", allow_inf_nan=False))


def _lenient(node: Any) -> Any:
    """Return a core schema that yields `MISSING` for each wrong field, item and value."""
    if isinstance(node, (list, tuple)):
        return type(node)(map(_lenient, node))
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if kind == "function-after" and _is_own_check(node["function"]["function"]):
        return _lenient(node["schema"]) | ({"ref": node["ref"]} if "ref" in node else {})
    # Values that are no schemas, such as defaults and classes, stay unchanged.
    made = {key: _lenient(value) if key in _SCHEMAS else value for key, value in node.items()}
    match kind:
        case "model":
            return _assembled(node["cls"], made)
        case "model-fields":
            made["fields"] = {name: _lenient_field(field) for name, field in node["fields"].items()}
            made["extra_behavior"] = "ignore"
        case "tagged-union":
            made["choices"] = {tag: _lenient(choice) for tag, choice in node["choices"].items()}
        case "union":
            made["choices"] = [_lenient(choice) for choice in node["choices"]]
        case "list" if "items_schema" in made:
            made["items_schema"] = _or_missing(made["items_schema"])
        case "tuple" if len(made["items_schema"]) == 1 and made.get("variadic_item_index") == 0:
            made["items_schema"] = [_or_missing(made["items_schema"][0])]
        case "dict" if "values_schema" in made:
            made["values_schema"] = _or_missing(made["values_schema"])
        case _:
            pass
    return made


_SCHEMAS = frozenset({"schema", "definitions", "items_schema", "keys_schema", "values_schema", "steps"})


def _is_own_check(function: Any) -> bool:
    return getattr(function, "__qualname__", "") == f"{SpecModel.__name__}._sound"


def _or_missing(schema: Any) -> Any:
    return {"type": "default", "schema": schema, "default": MISSING, "on_error": "default"}


def _lenient_field(field: Any) -> Any:
    schema = field["schema"]
    if schema["type"] == "default":
        inner = {**schema, "schema": _or_missing(_lenient(schema["schema"]))}
        return {**field, "schema": inner}
    return {**field, "schema": _or_missing(_lenient(schema))}


def _assembled(cls: type[SpecModel], node: Any) -> CoreSchema:
    """Return a core schema that puts the model's valid fields into an instance."""

    def assemble(data: Any, validate: Callable[[Any], tuple[dict[str, Any], Any, set[str]]]) -> Any:
        if isinstance(data, cls):
            return data
        values, _, given = validate(data)
        right = {name: kept for name, value in values.items() if (kept := _kept(value)) is not MISSING}
        made = cls.model_construct(_fields_set=given, **right)
        for name in values.keys() - right.keys():
            vars(made).pop(name, None)
        return made

    function = {"type": "no-info", "function": assemble}
    made = {"type": "function-wrap", "schema": node["schema"], "function": function}
    return cast(CoreSchema, made | ({"ref": node["ref"]} if "ref" in node else {}))


def _kept(value: Any) -> Any:
    """Return the value without wrong parts of its lists and mappings; `MISSING` if no part is valid."""
    if isinstance(value, dict):
        kept = {key: each for key, item in value.items() if (each := _kept(item)) is not MISSING}
        return kept if kept or not value else MISSING
    if not isinstance(value, (list, tuple)) or isinstance(value, RightItems):
        return value
    items = [(place, kept) for place, item in enumerate(value) if (kept := _kept(item)) is not MISSING]
    if value and not items:
        return MISSING
    made = RightItems(item for _, item in items)
    made.places = tuple(place for place, _ in items)
    return made


def _walk(value: Any, location: Location) -> Iterator[Problem]:
    for place, below in list(_parts(value)):
        yield from _walk(below, (*location, *place))
    if not isinstance(value, SpecModel):
        return
    for place, text in _checked(value):
        written = written_place(value, place)
        _forget(value, place)
        yield (*location, *written), text


def _checked(model: SpecModel) -> list[Problem]:
    problems: list[Problem] = []
    for check in model._checks():  # pyright: ignore[reportPrivateUsage]
        # A check may fail on parts that other checks have refused. The file is refused anyway.
        with contextlib.suppress(Exception):
            problems += collect(check)
    return problems


def _parts(value: Any) -> Iterator[tuple[Location, Any]]:
    """Yield the parts of a partial model, each with its place below it in the file."""
    if isinstance(value, SpecModel):
        for name, field in type(value).model_fields.items():
            if name in value.__dict__:
                alias = field.alias or name
                yield () if alias.startswith("@") else (alias,), value.__dict__[name]
    elif isinstance(value, RightItems):
        yield from (((place,), item) for place, item in zip(value.places, value, strict=True))
    elif isinstance(value, dict):
        yield from (((str(key),), item) for key, item in value.items())


def written_place(value: Any, place: Location) -> Location:
    """Return a place below a partial model with the list indices of the file."""
    if not place:
        return ()
    first, rest = place[0], place[1:]
    if isinstance(value, RightItems) and isinstance(first, int) and first < len(value):
        return (value.places[first], *written_place(value[first], rest))
    below = _below(value, first)
    return place if below is MISSING else (first, *written_place(below, rest))


def _below(value: Any, part: int | str | LineInText) -> Any:
    if isinstance(value, SpecModel) and (name := _field_name(value, part)):
        return value.__dict__.get(name, MISSING)
    return value.get(part, MISSING) if isinstance(value, dict) else MISSING


def _field_name(model: SpecModel, part: int | str | LineInText) -> str | None:
    fields = type(model).model_fields.items()
    return next((name for name, field in fields if part in (field.alias, name)), None)


def _forget(model: SpecModel, place: Location) -> None:
    """Removes the wrong field from a partial model; all fields if the place names none."""
    name = _field_name(model, place[0]) if place else None
    for each in [name] if name else list(vars(model)):
        vars(model).pop(each, None)


def forget(model: SpecModel, place: Location) -> None:
    """Removes a field from a partial model; nothing happens if the model has no such place."""
    value: Any = model
    for part in place[:-1]:
        if isinstance(value, RightItems):
            value = next((item for at, item in zip(value.places, value, strict=True) if at == part), None)
        else:
            value = _below(value, part)
    if isinstance(value, SpecModel):
        _forget(value, place[-1:])


def related(place: Location, places: Iterable[Location]) -> bool:
    """Whether a place is within one of several places, or contains one of them."""
    return any(each and (place[: len(each)] == each or each[: len(place)] == place) for each in places)
