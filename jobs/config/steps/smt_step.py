"""Single-message transforms of Kafka Connect in a stream's file: their properties, predicates, and places of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from jobs.config.documents.base import (
    Flag,
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
        if "type" not in found:
            raise problems_at([((), "needs type, such as ReplaceField$Value")])
        if isinstance(found.get("predicate"), str):
            alias = found["predicate"]
            hint = f"write predicates: {{{alias}: {{type: TopicNameMatches, pattern: …}}}} at the top of the file"
            raise problems_at([(("predicate",), f"'{alias}' is no alias under predicates; {hint}")])
        if isinstance(found.get("predicate"), dict):
            found["predicate"] = {key: _text(each, ("predicate", key)) for key, each in found["predicate"].items()}
        given = data.get("properties") or {key: each for key, each in data.items() if key not in _OWN}
        found["properties"] = {str(key): _text(each, (str(key),)) for key, each in given.items()}
        return found

    def _problems(self) -> Problems:
        try:
            self.transform()
        except TransformProblem as problem:
            yield problem.place, problem.message

    def transform(self) -> Transform:
        """The step.

        Raises:
            TransformProblem: Class or predicate is unknown.
        """
        smt = Smt(self.type, tuple(self.properties.items()), self.lenient)
        return smt_step(smt, self.predicate, negate=self.negate)


def _text(value: Any, place: tuple[str, ...]) -> str:
    """A property as a connector's file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise problems_at([(place, "needs a text, a number, true or false")])


def _predicates(given: Any) -> Any:
    """Each is one that there is, also where no step names it."""
    if not isinstance(given, dict):
        return given
    found: dict[str, dict[str, str]] = {}
    for alias, block in given.items():
        if not isinstance(block, dict):
            raise problems_at([((str(alias),), "needs type, such as {type: TopicNameMatches, pattern: …}")])
        found[str(alias)] = {str(key): _text(each, (str(alias), str(key))) for key, each in block.items()}
        try:
            predicate(found[str(alias)])
        except TransformProblem as problem:
            raise problems_at([((str(alias), *problem.place[1:]), problem.message)]) from None
    return found


Predicates = Annotated[dict[str, dict[str, str]], BeforeValidator(_predicates), Field(default_factory=dict)]
"""Predicates of Kafka Connect by the aliases that steps of a file name them with."""


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
            place = ("transform", number, "smt", "type")
            if not _changes_key(each):
                maker = maker or _maker(each, number)
                made.append(each)
            elif maker is not None:
                said = f"the key is the one that {maker} makes: write to_key: COLUMN in place of both for another one"
                raise problems_at([(place, said)])
            elif column is None:
                said = "decode.key puts the key's fields among the columns of the row: write into: key there, or"
                raise problems_at([(place, f"{said} change them as all others, by {_of_values(each)}")])
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
    """What step makes a key of its own, as messages call it."""
    type_ = str(_smt(step).get("type", "")).rpartition(".")[2]
    if type_ in _MAKE_KEYS or (isinstance(step, dict) and "to_key" in step):
        return f"{type_ or 'to_key'} in transform[{number}]"
    return None


def _column(decode: Any) -> str | None:
    """The column that holds keys; an empty name where no row holds them, None where several columns do."""
    try:
        key = Decode.model_validate(decode).key
    except ValidationError:
        # It is told of decode.
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
