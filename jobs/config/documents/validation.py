"""Validation of YAML files: what pydantic and PyYAML find wrong, as sentences that name file, line and field."""

from __future__ import annotations

import difflib
import json
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from jobs.base.errors import FrazilError
from jobs.config.documents.base import Location, Problem, field_path
from jobs.config.documents.yaml_document import YamlDocument, YamlUnreadable, read_yaml

ModelT = TypeVar("ModelT", bound=BaseModel)
_CONNECT_KEYS = Path(__file__).with_name("connect_keys.json")


class SpecError(FrazilError):
    """YAML files have problems, and the error lists all of them.

    Safe: Nothing was changed.
    Next: correct the lines that it names; then `frazil validate`

    Args:
        problems: One sentence each, such as ``streams/payments.yaml:12: decode.shema: unknown key; did you mean
            'schema'?``.
        path: The file, where it is one.
    """

    def __init__(self, problems: Iterable[str], *, fix: str = "frazil validate", path: Path | None = None) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        self.path: Path | None = path
        super().__init__("\n".join(self.problems), fix=fix)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.problems, self.fix, self.path)


def _rebuild(problems: tuple[str, ...], fix: str, path: Path | None) -> SpecError:
    return SpecError(problems, fix=fix, path=path)


def shown_path(path: Path) -> str:
    """Returns the path as messages show it: relative to the current folder if it is below."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def load_model(
    path: Path,
    model: type[ModelT],
    *,
    show_values: bool,
    further: Callable[[dict[str, Any]], Iterable[Problem]] | None = None,
) -> tuple[ModelT, YamlDocument]:
    """Reads a YAML file and validates it.

    Args:
        path: The file. Relative paths in it start at its folder.
        model: The model of the whole file.
        show_values: Whether messages may repeat what was written; not for a file in which secrets may stand.
        further: Finds problems in the raw data that the model does not reach while other parts of it are wrong.

    Raises:
        SpecError: With every problem found.
    """
    shown = shown_path(path)
    # Raised outside of `except`, so that no pydantic error with its inputs hangs on to it as its context.
    failed: SpecError | None = None
    try:
        document = read_yaml(path, shown=shown)
    except YamlUnreadable as unreadable:
        failed = SpecError(unreadable.located(shown), path=path)
    else:
        try:
            return model.model_validate(document.data, context={"base": path.absolute().parent}), document
        except ValidationError as error:
            found = list(found_in(error, model, show_values=show_values))
        if further is not None and isinstance(document.data, dict):
            found.extend(problem for problem in further(document.data) if problem not in found)
        failed = located(document, found, path)
    raise failed


def located(document: YamlDocument, found: Iterable[Problem], path: Path) -> SpecError:
    """Makes one error of the problems that validation found in a file, in the order of its lines."""
    lines: list[tuple[int, str]] = []
    for location, text in found:
        place = f"{document.shown}:{document.line_of(location)}"
        field = field_path(location)
        lines.append((document.line_of(location), f"{place}: {field}: {text}" if field else f"{place}: {text}"))
    return SpecError(dict.fromkeys(text for _, text in sorted(lines, key=lambda entry: entry[0])), path=path)


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word nearest to a wrong one for a validation error, if any is near."""
    by_case = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), by_case, n=1, cutoff=0.6)
    return by_case[near[0]] if near else None


def found_in(error: ValidationError, root: type[BaseModel], *, show_values: bool) -> Iterator[Problem]:
    """What validation by pydantic found wrong, each with its place and a sentence.

    Args:
        root: The model of the whole file.
        show_values: Whether the sentences may repeat what was written.
    """
    unknown: dict[Location, str | None] = {}
    rest: list[tuple[Location, Any]] = []
    for entry in error.errors(include_url=False):
        location = _plain(entry["loc"])
        if entry["type"] == "extra_forbidden":
            models = list(_models_at(root, location[:-1]))
            known = [field.alias or name for model in models for name, field in model.model_fields.items()]
            key = str(location[-1])
            answer = connect_answer(field_path(location[:-1]), key)
            near = suggestion(key, known) if answer is None else None
            unknown[location] = near
            said = f"this key of Kafka Connect {answer}" if answer else _unknown_key(key, near, known, models)
            yield location, said
        else:
            rest.append((location, entry))
    # A key that is missing because it is misspelt has been told already.
    misspelt = {(*location[:-1], near) for location, near in unknown.items()}
    for location, entry in rest:
        context = entry.get("ctx", {})
        if entry["type"] == "frazil_problems":
            for below, text in context["problems"]:
                yield (*location, *below), text
        elif entry["type"] != "missing" or location not in misspelt:
            yield location, _sentence(entry, show_values=show_values and "security" not in location)


@cache
def connect_answers() -> tuple[tuple[str, str], ...]:
    """Keys of Kafka Connect and its Iceberg sink as regular expressions, each with what it is called here, or why not.

    Connect itself accepts what it does not know in silence, so a key that is carried over has to get an answer. What
    follows the key in the sentence; the first that matches a whole key counts.
    """
    return tuple((pattern, answer) for pattern, answer in json.loads(_CONNECT_KEYS.read_text(encoding="utf-8")))


def connect_answer(above: str, key: str) -> str | None:
    """What to say of a key that is Kafka Connect's, as the rest of a sentence about it; None if it is not known as one.

    Args:
        above: The keys that it stands under, with dots: `errors`; empty at the top of the file.
        key: The key as it was written, such as `deadletterqueue` or `errors.deadletterqueue.topic.name`.
    """
    for written in (f"{above}.{key}" if above else key, key):
        for pattern, answer in connect_answers():
            if re.fullmatch(pattern, written):
                return answer
    return None


def _unknown_key(key: str, near: str | None, known: list[str], models: list[type[BaseModel]]) -> str:
    if near is not None:
        return f"unknown key; did you mean '{near}'?"
    for model in models:
        for name, field in model.model_fields.items():
            for below in _models_in(field.annotation):
                if any(key == (inner.alias or inner_name) for inner_name, inner in below.model_fields.items()):
                    return f"unknown key here; it belongs under '{field.alias or name}'"
    return f"unknown key; known here: {', '.join(known)}"


def _sentence(entry: Any, *, show_values: bool) -> str:
    kind, value = entry["type"], entry["input"]
    if kind == "missing":
        return "is required and missing"
    if kind == "value_error":
        return str(entry["ctx"]["error"])
    if kind.startswith("frazil_"):
        return entry["msg"]
    if kind == "literal_error":
        allowed = entry["ctx"]["expected"]
        words = [word.strip("' ") for word in allowed.replace(" or ", ", ").split(",")]
        near = suggestion(value, words) if isinstance(value, str) else None
        return f"must be {allowed}{_found_value(value, show_values)}" + (f"; did you mean '{near}'?" if near else "")
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f"must be text{_found_value(value, show_values)}; put it in quotes"
    messages: dict[str, str] = {
        "string_type": "must be text",
        "int_type": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "bool_type": "must be true or false",
        "model_type": "must be a mapping of keys to values",
        "dict_type": "must be a mapping of keys to values",
        "tuple_type": "must be a list",
    }
    message = messages.get(kind) or str(entry["msg"]).replace("Input should", "must")
    return message + _found_value(value, show_values or value is None or isinstance(value, (list, dict)))


def _found_value(value: object, show: bool) -> str:
    if not show:
        return ""
    if value is None:
        return "; found nothing"
    if isinstance(value, bool):
        return f"; found {str(value).lower()}"
    if isinstance(value, str):
        return f"; found '{value if len(value) <= 60 else value[:57] + '…'}'"
    if isinstance(value, (int, float)):
        return f"; found {value}"
    return "; found a list" if isinstance(value, (list, tuple)) else "; found a mapping"


def _plain(location: tuple[int | str, ...]) -> Location:
    """Takes out what pydantic adds to a place: union tags (ours start with `@`) and the mark of a mapping's key."""
    return tuple(p for p in location if not (isinstance(p, str) and (p.startswith("@") or p == "[key]")))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _models_at(root: type[BaseModel], location: Location) -> Iterator[type[BaseModel]]:
    models = [root]
    for part in location:
        if isinstance(part, int):
            # The models of a list's field are those of its entries.
            continue
        models = [
            below
            for model in models
            for name, field in model.model_fields.items()
            if part in (field.alias, name)
            for below in _models_in(field.annotation)
        ]
    yield from models
