"""Validation of a YAML file that reports all mistakes in one pass, each with its place and a sentence."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from jobs.config.documents.base import Location, Problem, SpecModel
from jobs.config.documents.model_places import keys_of, models_at, unknown_key
from jobs.config.documents.partial import forget, partial_model, partial_problems, related
from jobs.config.documents.sentences import sentence_of
from jobs.config.documents.written_forms import example_at, example_of, joined_items, shown_form, written_form

ModelT = TypeVar("ModelT", bound=SpecModel)

# Limit of trials; each one validates the file once, which takes a few milliseconds.
_MOST_TRIALS = 200
_CLEARLY_MEANT = 0.75
_Readable = Callable[[Any, Sequence[Location]], Any]
_ITSELF: _Readable = lambda data, _: data  # noqa: E731


@dataclass(frozen=True, slots=True)
class FileRules:
    """Rules for validating a file beside its model.

    Attributes:
        readable: Returns the data without wrong parts, as far as the rest can be validated without them.
        independent: Returns those problems that do not follow from others, given the data.
    """

    readable: _Readable = _ITSELF
    independent: Callable[[list[Problem], Any], list[Problem]] = lambda problems, _: problems


PLAIN_RULES = FileRules()


def judge(
    data: Any,
    model: type[ModelT],
    *,
    context: Mapping[str, Any],
    show_values: bool,
    rules: FileRules = PLAIN_RULES,
) -> tuple[ModelT | None, list[Problem]]:
    """Validates the data of a file.

    Args:
        data: Content of the file.
        model: Model of the whole file.
        context: Context for the model's validators: `base` is the folder of relative paths.
        show_values: Whether sentences may quote values; false for a file that may contain secrets.
        rules: Rules beside the model.

    Returns:
        The model; or None and every problem, once.
    """
    # Outside of `except`, so that no error refers to pydantic's error, which contains the inputs.
    with contextlib.suppress(ValidationError):
        return model.model_validate(data, context=dict(context)), []
    return None, _WrongFile(data, model, dict(context), show_values, rules).problems()


@dataclass
class _WrongFile(Generic[ModelT]):
    data: Any
    model: type[ModelT]
    context: dict[str, Any]
    show_values: bool
    rules: FileRules
    # Places in the file, by places in the repaired data.
    written: dict[Location, Location] = field(default_factory=dict)
    # Places whose repair has no certain value.
    doubtful: list[Location] = field(default_factory=list)
    trials: int = 0

    def problems(self) -> list[Problem]:
        repaired = list(self._repaired())
        errors = self._errors(self.data)
        wrong = list(self._sentences(errors))
        found = [*repaired, *((self._back(place), text) for place, text in wrong)]
        # Checks of the whole file run only if all of its parts are valid; then there are no other problems.
        if any(_place_of(entry) for entry in errors):
            places = [*(place for place, _ in found), *map(self._back, self.doubtful)]
            further = [(self._back(place), text) for place, text in self._partial_problems([at for at, _ in wrong])]
            found += [each for each in further if not related(each[0], places)]
        return self.rules.independent(list(dict.fromkeys(found)), self.data)

    def _errors(self, data: Any) -> list[Any]:
        try:
            self.model.model_validate(data, context=self.context)
        except ValidationError as error:
            return error.errors(include_url=False)
        return []

    def _partial_problems(self, wrong: Sequence[Location]) -> list[Problem]:
        partial = partial_model(self.model, self.rules.readable(self.data, wrong), self.context)
        if partial is None:
            return []
        for place in self.doubtful:
            forget(partial, place)
        return partial_problems(partial)

    def _back(self, place: Location) -> Location:
        for end in range(len(place), 0, -1):
            if (written := self.written.get(place[:end])) is not None:
                return (*written, *place[end:])
        return place

    def _repaired(self) -> Iterator[Problem]:
        """Repairs values whose meaning is clear, so that the parts below are validated, too; yields the problems."""
        yield from self._joined_lists()
        seen: set[Location] = set()
        # A repaired block may contain misspelt keys.
        for _ in range(4):
            unknown = [place for each in self._errors(self.data) if (place := _unknown_at(each)) and place not in seen]
            for place in unknown:
                seen.add(place)
                text, near = unknown_key(place[:-1], str(place[-1]), models_at(self.model, place[:-1]))
                yield self._back(place), text
                self._meant(place, near)
            if not unknown:
                return

    def _meant(self, place: Location, near: str | None) -> None:
        if near is None:
            return
        meant, key = (*place[:-1], near), str(place[-1])
        block = _value_at(self.data, place[:-1])
        clear = difflib.SequenceMatcher(None, key.casefold(), near.casefold()).ratio() >= _CLEARLY_MEANT
        if not clear or near in block:
            self.doubtful.append(meant)
            return
        renamed = {near if str(each) == key else each: value for each, value in block.items()}
        self.written[meant] = self._back(place)
        self.data = _replaced(self.data, place[:-1], renamed)

    def _joined_lists(self) -> Iterator[Problem]:
        for place, items in list(_lists(self.data)):
            joined = joined_items(items)
            if joined is None or not any(_place_of(each)[: len(place)] == place for each in self._errors(self.data)):
                continue
            if not self._takes(place, joined):
                continue
            at = 0
            for index, item in enumerate(joined):
                self.written[(*place, index)] = (*place, at)
                if item != items[at]:
                    form = shown_form([item], show_values=self.show_values)
                    yield (*place, at), f"is several entries, as YAML reads commas; put it in quotes: {form}"
                    at += str(item).count(",") - (str(items[at]).count(","))
                at += 1
            self.data = _replaced(self.data, place, joined)

    def _sentences(self, errors: Iterable[Any]) -> Iterator[Problem]:
        for entry in errors:
            place, kind = _place_of(entry), entry["type"]
            if kind == "frazil_problems":
                yield from (((*place, *below), text) for below, text in entry["ctx"]["problems"])
            elif kind == "too_short" and len(entry["input"]) >= entry["ctx"]["min_length"]:
                # It has entries enough, but wrong ones, which have problems of their own.
                continue
            elif kind == "extra_forbidden" or (kind == "missing" and place in self.doubtful):
                continue
            elif kind == "missing":
                yield place, sentence_of(entry, show_values=False) + self._example_at(place)
            else:
                show = self.show_values and "security" not in place
                said = sentence_of(entry, show_values=show)
                yield place, said + self._hint(place, said, show_values=show, words=kind != "value_error")

    def _example_at(self, place: Location) -> str:
        key = str(place[-1])
        for model in models_at(self.model, place[:-1]):
            if (example := example_of(model).get(key)) is not None:
                return f"; write {shown_form({key: example}, show_values=True)[1:-1]}"
        return ""

    def _hint(self, place: Location, said: str, *, show_values: bool, words: bool) -> str:
        """Return the form to write for this value, as the end of a sentence; empty if the sentence already has one."""
        if "write " in said or "did you mean" in said or not place:
            return ""
        models = models_at(self.model, place)
        value = _value_at(self.data, place)
        form = written_form(value, models, partial(self._takes, place), words=words)
        if form is not None:
            return f"; write {shown_form(form, show_values=show_values, keys=keys_of(models))}"
        if "such as" in said or said.startswith("must be '"):
            # The sentence has an example, or names all allowed words.
            return ""
        key, above = (place[-1] if isinstance(place[-1], str) else None), models_at(self.model, place[:-1])
        example = example_at(key, above, models or models_at(self.model, (*place, 0)), partial(self._takes, place))
        return "" if example is None else f"; an example is {shown_form(example, show_values=True)}"

    def _takes(self, place: Location, form: Any) -> bool:
        """Whether a value is valid at a place, whatever is wrong elsewhere."""
        if self.trials >= _MOST_TRIALS:
            return False
        self.trials += 1
        try:
            errors = self._errors(_replaced(self.data, place, form))
        except Exception:
            # The value is only a trial. If a validator fails at it, the file's problems must still be reported.
            return False
        for entry in errors:
            at = _place_of(entry)
            if entry["type"] == "frazil_problems":
                # Missing keys of a block around the place do not matter here.
                places = [(*at, *below) for below, _ in entry["ctx"]["problems"]] if at else []
            elif place[: len(at)] == at:
                return False
            else:
                places = [at]
            if any(each[: len(place)] == place for each in places):
                return False
        return True


def _place_of(entry: Any) -> Location:
    """Removes what pydantic adds to a place: union tags (ours start with `@`) and the mark of a mapping's key."""
    return tuple(p for p in entry["loc"] if not (isinstance(p, str) and (p.startswith("@") or p == "[key]")))


def _unknown_at(entry: Any) -> Location | None:
    return _place_of(entry) if entry["type"] == "extra_forbidden" else None


def _value_at(data: Any, place: Location) -> Any:
    for part in place:
        if isinstance(data, dict):
            data = next((value for key, value in data.items() if key == part or str(key) == str(part)), None)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _replaced(data: Any, place: Location, value: Any) -> Any:
    """Return the data with another value at a place; containers around it are copied."""
    if not place:
        return value
    first, rest = place[0], place[1:]
    if isinstance(data, dict):
        known = next((key for key in data if key == first or str(key) == str(first)), first)
        return {**data, known: _replaced(data.get(known), rest, value)}
    if isinstance(data, list) and isinstance(first, int) and first < len(data):
        return [_replaced(item, rest, value) if index == first else item for index, item in enumerate(data)]
    return data


def _lists(data: Any) -> Iterator[tuple[Location, list[Any]]]:
    """Yield each list of the data once: a YAML alias may refer to a list from several places, or from within itself."""
    pending: list[tuple[Location, Any]] = [((), data)]
    visited: set[int] = set()
    while pending:
        place, value = pending.pop()
        if not isinstance(value, (dict, list)) or id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, list):
            yield place, value
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        pending += [((*place, part if isinstance(part, int) else str(part)), inner) for part, inner in entries]
