"""Corrected forms of wrong values, such as `trigger: 60s`, `ratio: 5%` or `[bucket(16, id)]`, for hints in messages.

A form rewrites the value in the file. The model has to accept it, so no hint is a guess.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from pydantic import BaseModel

from jobs.config.documents.base import SpecModel

_YES, _NO = ("yes", "on", "y", "true", "enabled"), ("no", "off", "n", "false", "disabled")
_NUMBER = re.compile(r"[-+]?[0-9][0-9_ ']*(?:[.,][0-9]+)?")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[, _'.][0-9]{3})+")
_COUNT = re.compile(r"([0-9]+(?:[.,][0-9]+)?)\s*([kKmM])")
_MEASURE = re.compile(r"([0-9]+(?:[.,][0-9]+)?)\s*([A-Za-z]+)")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE)
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME_WORDS = {
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400_000),
}
_BYTES = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SIZE_WORDS = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kilobyte", "kilobytes"), 1024),
    **dict.fromkeys(("m", "mb", "mib", "megabyte", "megabytes"), 1024**2),
    **dict.fromkeys(("g", "gb", "gib", "gigabyte", "gigabytes"), 1024**3),
    **dict.fromkeys(("t", "tb", "tib", "terabyte", "terabytes"), 1024**4),
}


class _FormDumper(yaml.SafeDumper):
    """YAML dumper that writes texts with line numbers as plain texts."""


_FormDumper.add_multi_representer(str, _FormDumper.represent_str)
_PLAIN = re.compile(r"[0-9]+(?:ms|s|m|h|d|B|KB|MB|GB|TB)?")
_UNSHOWN = "…"


def written_form(
    value: object, models: Sequence[type[BaseModel]], takes: Callable[[Any], bool], *, words: bool = True
) -> Any:
    """Return the first rewrite of a value that is valid at its place; None if there is none.

    Args:
        value: The value as written.
        models: Models that are allowed at its place.
        takes: Whether a value is valid at the place.
        words: Whether another text may be suggested; false for names.
    """
    tried: list[Any] = []
    for form in _forms(value, models):
        if not words and isinstance(value, str) and isinstance(form, str) and not _PLAIN.fullmatch(form):
            continue
        if form is not None and not any(type(form) is type(other) and form == other for other in (value, *tried)):
            tried.append(form)
            if takes(form):
                return form
    return None


def shown_form(form: Any, *, show_values: bool, keys: Collection[str] = ()) -> str:
    """Return a form as a line of YAML.

    Args:
        form: The value to write.
        show_values: Whether the line may quote texts of the file; otherwise they become an ellipsis.
        keys: Keys of the models, which are always shown.
    """
    plain = form if show_values else _without_texts(form, keys)
    text = yaml.dump(
        plain, Dumper=_FormDumper, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def joined_items(items: Sequence[Any]) -> list[Any] | None:
    """Join texts of a list that YAML has split within brackets; None if it has split none.

    `[bucket(16, id), at]` is three items to YAML, and becomes `bucket(16, id)` and `at`.
    """
    joined: list[Any] = []
    for item in items:
        if joined and isinstance(joined[-1], str) and _is_open(joined[-1]) and isinstance(item, (str, int, float)):
            joined[-1] = f"{joined[-1]}, {item}"
        else:
            joined.append(item)
    return joined if len(joined) < len(items) else None


def _is_open(text: str) -> bool:
    return sum(map(text.count, "(<")) > sum(map(text.count, ")>"))


def _without_texts(form: Any, keys: Collection[str]) -> Any:
    if isinstance(form, dict):
        return {key if key in keys else _UNSHOWN: _without_texts(value, keys) for key, value in form.items()}
    if isinstance(form, list):
        return [_without_texts(value, keys) for value in form]
    return form if not isinstance(form, str) or _PLAIN.fullmatch(form) else _UNSHOWN


def _forms(value: object, models: Sequence[type[BaseModel]]) -> Iterator[Any]:
    scalars = list(_scalars(value))
    yield from scalars
    yield from _collections(value)
    for model in models:
        # A boolean in place of a block means one of its boolean keys.
        for scalar in (value, *(() if isinstance(value, bool) else scalars), *_with_units(value)):
            if not isinstance(scalar, (list, dict)):
                yield from _blocks(scalar, model)
    for scalar in scalars:
        yield [scalar]


def _scalars(value: object) -> Iterator[Any]:
    if isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, (int, float)):
        if value in (0, 1):
            yield bool(value)
        if isinstance(value, float) and value.is_integer():
            yield int(value)
        if 1 < value <= 100:
            yield value / 100
        yield str(value)
    elif isinstance(value, str):
        yield from _of_text(value.strip())
    elif isinstance(value, list) and len(value) == 1:
        yield value[0]
        yield from _scalars(value[0])
    elif isinstance(value, dict) and len(value) == 1:
        ((key, inner),) = value.items()
        if inner is None:
            # YAML reads `${env:NAME}` and `{value}` without quotes as mappings.
            yield f"{{{key}}}"
        elif isinstance(inner, (str, int, float)):
            yield inner
            yield from _scalars(inner)


def _of_text(text: str) -> Iterator[Any]:
    word = text.casefold()
    if word in _YES or word in _NO:
        yield word in _YES
    if text.endswith("%") and (share := _number(text[:-1].strip())) is not None:
        yield round(share / 100, 12)
    if _GROUPED.fullmatch(text):
        yield int(re.sub(r"[^0-9]", "", text))
    if (number := _number(text)) is not None:
        yield number
        yield from _scalars(number)
    if count := _COUNT.fullmatch(text):
        yield round(float(count[1].replace(",", ".")) * (1_000 if count[2].lower() == "k" else 1_000_000))
    yield from _measures(text)
    yield re.sub(r"[\s-]+", "_", word)
    yield text


def _number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return None
    bare = re.sub(r"[_ ']", "", text).replace(",", ".")
    return float(bare) if "." in bare else int(bare)


def _measures(text: str) -> Iterator[str]:
    parts = _MEASURE.findall(text)
    if parts and re.sub(r"[\s,]|and", "", _MEASURE.sub("", text)) == "":
        if all(unit.lower() in _TIME_WORDS for _, unit in parts):
            yield _in_units(sum(_amount(number) * _TIME_WORDS[unit.lower()] for number, unit in parts), _MILLISECONDS)
        if len(parts) == 1 and (unit := _SIZE_WORDS.get(parts[0][1].lower())) is not None:
            yield _in_units(_amount(parts[0][0]) * unit, _BYTES)
    if len(text) > 2 and (iso := _ISO.fullmatch(text)):
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        yield _in_units(1_000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds), _MILLISECONDS)


def _amount(number: str) -> float:
    return float(number.replace(",", "."))


def _in_units(amount: float, units: dict[str, int]) -> str:
    whole = round(amount)
    unit = max((name for name in units if whole % units[name] == 0), key=lambda name: units[name])
    return f"{whole // units[unit]}{unit}"


def _with_units(value: object) -> Iterator[str]:
    """Yield durations for a plain number: people mean seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield f"{value}s"


def _collections(value: object) -> Iterator[Any]:
    if isinstance(value, str):
        text = value.strip()
        yield [text]
        yield [part.strip() for part in text.split(",")]
        if pair := re.fullmatch(r"([^\s:=]+)\s*[:=]\s*(.+)", text):
            yield {pair[1]: pair[2]}
    elif isinstance(value, list):
        if (joined := joined_items(value)) is not None:
            yield joined
            if len(joined) == 1:
                yield joined[0]
        if value and all(isinstance(item, dict) for item in value):
            yield {key: inner for item in value for key, inner in item.items()}
        pairs = [re.fullmatch(r"([^\s:=]+)\s*[:=]\s*(.+)", item) for item in value if isinstance(item, str)]
        if pairs and len(pairs) == len(value) and all(pairs):
            yield {pair[1]: pair[2] for pair in pairs if pair}
        if all(isinstance(item, (str, int, float)) for item in value):
            yield ", ".join(map(str, value))
            yield list(map(str, value))
        if not value:
            yield {}
    elif isinstance(value, dict):
        yield [value]
        yield [{key: inner} for key, inner in value.items()]
        yield list(value)
        if not value:
            yield []
    elif value is not None:
        yield [value]


def _blocks(scalar: object, model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """Yield mappings of a model with the value at one of its keys; other required keys come from the example."""
    example = example_of(model)
    required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
    for name, field in model.model_fields.items():
        key = field.alias or name
        if scalar is None or key.startswith("@") or (isinstance(scalar, bool) and not _takes_flags(field.annotation)):
            continue
        yield {**{other: example[other] for other in required if other in example}, key: scalar}


def _takes_flags(annotation: Any) -> bool:
    """Whether a field is a boolean: pydantic would accept `true` as the number 1, which nobody means."""
    return annotation is bool or any(map(_takes_flags, typing.get_args(annotation)))


@cache
def example_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """Return the example of a block: the model's own, else its first key with a default that can be shown."""
    if issubclass(model, SpecModel) and model.example:
        return yaml.safe_load(model.example)
    defaults = {field.alias or name: field.default for name, field in model.model_fields.items()}
    if any(field.is_required() for field in model.model_fields.values()):
        return {}
    shown = {key: value for key, value in defaults.items() if isinstance(value, (str, int, float)) and key != "enabled"}
    return dict(list(shown.items())[:1])


# Examples for lists and mappings of texts whose entries have no model.
_ENTRIES = ("id", "day(created_at)", "$.debug", "22:00-05:00", "https://example.com")


def example_at(
    key: str | None, above: Iterable[type[BaseModel]], models: Iterable[type[BaseModel]], takes: Callable[[Any], bool]
) -> Any:
    """Return an example of a value for a key; None if there is none.

    Args:
        key: The key; None for an entry of a list.
        above: Models that may have the key.
        models: Models that are allowed as its value.
        takes: Whether a value is valid at the place.
    """
    of_blocks = [example for model in models if (example := example_of(model))]
    of_key = [example for model in above if key and (example := example_of(model).get(key)) is not None]
    for example in (*of_key, *of_blocks, *([example] for example in of_blocks)):
        if takes(example):
            return example
    entries = ([entry] for entry in _ENTRIES)
    return next((entry for entry in entries if takes(entry)), None)
