"""Single-message transforms of Kafka Connect in a stream's file: properties, predicates, and the column of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from jobs.config.documents.base import (
    Flag,
    Problem,
    Problems,
    SpecModel,
    problems_at,
)
from jobs.config.values.decode import Decode
from jobs.records.formats.primitive.block import COLUMN_TYPES
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.keys import KEY_COLUMN, of_key
from jobs.records.transforms.smt.smt import Smt, predicate, smt_step
from jobs.records.transforms.transform import Transform

_OWN = ("type", "lenient", "predicate", "negate", "properties")


class SmtStep(SpecModel):
    """A transform of Kafka Connect; its own properties stand beside `type`, see `jobs.records.transforms.smt`.

    Args:
        type: Class, in full or by its short name, such as ``Flatten$Value``.
        lenient: Changes values as Connect does where frazil would make the record a dead letter.
        predicate: ``type`` and properties of a predicate, or its alias. Without it, every record is transformed.
        negate: Transforms the records for which the predicate does not hold.
        properties: Properties of the transform, by Connect's names. In the file they stand beside ``type``.
    """

    example = "{type: ReplaceField$Value, exclude: note}"

    type: str
    lenient: Flag = False
    predicate: dict[str, str] | None = None
    negate: Flag = False
    properties: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _beside_the_type(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"type": data}
        if not isinstance(data, dict):
            return data
        found = {key: each for key, each in data.items() if key in _OWN[:4]}
        problems: list[Problem] = []
        if "type" not in found:
            problems.append(((), "needs type, such as ReplaceField$Value"))
        if isinstance(found.get("predicate"), str):
            alias = found["predicate"]
            hint = f"write predicates: {{{alias}: {{type: TopicNameMatches, pattern: …}}}} at the top of the file"
            problems.append((("predicate",), f"'{alias}' is no alias under predicates; {hint}"))
        if isinstance(found.get("predicate"), dict):
            found["predicate"] = _texts(found["predicate"], ("predicate",), problems)
        given = data.get("properties") or {key: each for key, each in data.items() if key not in _OWN}
        if isinstance(given, dict):
            found["properties"] = _texts(given, (), problems)
        else:
            problems.append((("properties",), "must be a mapping of keys to values, such as {exclude: note}"))
        if problems:
            raise problems_at(problems)
        return found

    def _problems(self) -> Problems:
        try:
            self.transform()
        except TransformProblem as problem:
            yield problem.place, problem.message

    def transform(self) -> Transform:
        """Return the step.

        Raises:
            TransformProblem: Class or predicate is unknown.
        """
        smt = Smt(self.type, tuple(self.properties.items()), self.lenient)
        return smt_step(smt, self.predicate, negate=self.negate)


def _texts(given: dict[Any, Any], above: tuple[str, ...], problems: list[Problem]) -> dict[str, str]:
    """Return properties in the form of a connector's file; problems are added for those that are no texts."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, bool):
            found[str(key)] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            found[str(key)] = str(value)
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            found[str(key)] = ",".join(value)
        else:
            problems.append(((*above, str(key)), "needs a text, a number, true or false"))
    return found


def _predicates(given: Any) -> Any:
    """Check that each predicate exists, even if no step names it."""
    if not isinstance(given, dict):
        return given
    found: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    for alias, block in given.items():
        if not isinstance(block, dict):
            problems.append(((str(alias),), "needs type, such as {type: TopicNameMatches, pattern: …}"))
            continue
        wrong: list[Problem] = []
        found[str(alias)] = _texts(block, (str(alias),), wrong)
        try:
            if not wrong:
                predicate(found[str(alias)])
        except TransformProblem as problem:
            wrong.append(((str(alias), *problem.place[1:]), problem.message))
        problems += wrong
    if problems:
        raise problems_at(problems)
    return found


Predicates = Annotated[dict[str, dict[str, str]], BeforeValidator(_predicates), Field(default_factory=dict)]
"""Predicates of Kafka Connect by the aliases with which steps name them."""


class WithPredicates(SpecModel):
    """A file with `predicates`, which steps may name by alias: each is as if it had the predicate's block itself."""

    @model_validator(mode="before")
    @classmethod
    def _in_their_place(cls, data: Any) -> Any:
        known = data.get("predicates") if isinstance(data, dict) else None
        if not isinstance(known, dict) or not isinstance(data.get("transform"), list | tuple):
            return data
        return {**data, "transform": [_with_predicate(each, known) for each in data["transform"]]}


def _with_predicate(step: Any, known: dict[Any, Any]) -> Any:
    if not isinstance(step, dict) or not isinstance(smt := step.get("smt"), dict):
        return step
    alias = smt.get("predicate")
    if not isinstance(alias, str) or alias not in known:
        return step
    return {**step, "smt": {**smt, "predicate": known[alias]}}


_MAKE_KEYS = ("ValueToKey", "EventRouter")
_SMT_TYPE = ("smt", "type")


@dataclass(frozen=True, slots=True)
class WrongStep:
    """Stand-in for an invalid step, so that all other steps are validated.

    Attributes:
        problem: Problem, with the place below the step.
    """

    problem: Problem


class WithKeyColumns(SpecModel):
    """A file whose transforms may change keys: they need not say which column holds them."""

    @model_validator(mode="before")
    @classmethod
    def _keys_in_place(cls, data: Any) -> Any:
        steps = data.get("transform") if isinstance(data, dict) else None
        if not isinstance(steps, list | tuple) or not any(_changes_key(each) for each in steps):
            return data
        column = _column(data.get("decode"))
        made: list[Any] = []
        maker: str | None = None
        for number, each in enumerate(steps):
            if not _changes_key(each):
                maker = maker or _maker(each, number)
                made.append(each)
            elif maker is not None:
                said = f"the key is the one that {maker} makes: write to_key: COLUMN in place of both for another one"
                made.append(WrongStep((_SMT_TYPE, said)))
            elif column is None:
                said = "decode.key puts the key's fields among the columns of the row: write into: key there, or"
                said = f"{said} change them as all others, by {_of_values(each)}"
                made.append(WrongStep((_SMT_TYPE, said)))
            else:
                made.append(_with(each, column))
        return {**data, "transform": made}


def _changes_key(step: Any) -> bool:
    return isinstance(type_ := _smt(step).get("type"), str) and of_key(type_)


def _smt(step: Any) -> Mapping[str, Any]:
    smt = step.get("smt") if isinstance(step, dict) else None
    return {"type": smt} if isinstance(smt, str) else smt if isinstance(smt, dict) else {}


def _of_values(step: Any) -> str:
    return str(_smt(step)["type"]).rpartition(".")[2].replace("$Key", "$Value")


def _maker(step: Any, number: int) -> str | None:
    """Return the name, for messages, of a step that makes its own key; None for other steps."""
    type_ = str(_smt(step).get("type", "")).rpartition(".")[2]
    if type_ in _MAKE_KEYS or (isinstance(step, dict) and "to_key" in step):
        return f"{type_ or 'to_key'} in transform[{number}]"
    return None


def _column(decode: Any) -> str | None:
    """Return the column with keys; empty if rows have none, None if several columns have them."""
    try:
        key = Decode.model_validate(decode).key
    except ValidationError:
        # `decode` itself reports the problem.
        return ""
    if key is None:
        return ""
    columns = key.columns
    if columns.into is not None:
        return columns.into
    return columns.names[0] if key.format in COLUMN_TYPES else None


def _with(step: Any, column: str) -> Any:
    smt = _smt(step)
    given = smt.get("properties")
    if not column or KEY_COLUMN in smt or (isinstance(given, dict) and KEY_COLUMN in given):
        return step
    if isinstance(given, dict):
        return {**step, "smt": {**smt, "properties": {**given, KEY_COLUMN: column}}}
    return {**step, "smt": {**smt, KEY_COLUMN: column}}
