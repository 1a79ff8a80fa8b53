"""Single-message transform in a stream's YAML file: Connect's name and properties, as they stand in a connector."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from jobs.spec.base import Flag, SpecModel, problems_at
from jobs.transform.columns import TransformProblem
from jobs.transform.smt.smt import Smt, smt_step
from jobs.transform.transform import Transform

_OWN = ("type", "lenient", "predicate", "negate", "properties")


class SmtStep(SpecModel):
    """A transform of Kafka Connect; its own properties stand beside `type`, see `jobs.transform.smt`.

    Args:
        type: The class, in full or by its short name, such as `Flatten$Value`.
        lenient: Whether values are changed as Connect changes them, where otherwise the record is a dead letter.
        predicate: `type` and properties of a predicate; without it every record is transformed.
        negate: Whether those are for which the predicate does not hold.
        properties: The transform's, by Connect's names.
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
            hint = "write the predicate here: {type: TopicNameMatches, pattern: …}"
            raise problems_at([(("predicate",), f"'{found['predicate']}' is an alias of another file; {hint}")])
        if isinstance(found.get("predicate"), dict):
            found["predicate"] = {key: _text(each, ("predicate", key)) for key, each in found["predicate"].items()}
        given = data.get("properties") or {key: each for key, each in data.items() if key not in _OWN}
        found["properties"] = {str(key): _text(each, (str(key),)) for key, each in given.items()}
        return found

    @model_validator(mode="after")
    def _known(self) -> SmtStep:
        try:
            self.transform()
        except TransformProblem as problem:
            raise problems_at([(problem.place, problem.message)]) from None
        return self

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
