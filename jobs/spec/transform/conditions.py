"""Conditions in a stream's YAML file: which rows a step is for."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from jobs.spec.base import Flag, SpecModel, problems_at
from jobs.transform.condition import AllOf, Condition, HasHeader, IsTombstone, Not, TopicMatches
from jobs.transform.sql import SqlCondition


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as problem:
        raise ValueError(f"is no regular expression: {problem}") from None
    return value


class When(SpecModel):
    """A condition; of several keys all have to hold.

    Args:
        sql: A SQL expression over the row that is true. A text alone is one.
        topic: A regular expression that the whole name of the topic matches.
        header: Name of a header that the record has.
        tombstone: Whether a step before has left the row without a value.
        negated: A condition that does not hold.
    """

    sql: Annotated[str, Field(min_length=1)] | None = None
    topic: Annotated[str, AfterValidator(_pattern)] | None = None
    header: Annotated[str, Field(min_length=1)] | None = None
    tombstone: Flag | None = None
    negated: Annotated[When | None, Field(alias="not")] = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"sql": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _says_something(self) -> When:
        if not self.conditions:
            raise problems_at([((), "needs sql, topic, header, tombstone or not")])
        return self

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What its keys ask."""
        found: list[Condition] = []
        if self.sql is not None:
            found.append(SqlCondition(self.sql))
        if self.topic is not None:
            found.append(TopicMatches(self.topic))
        if self.header is not None:
            found.append(HasHeader(self.header))
        if self.tombstone is not None:
            found.append(IsTombstone() if self.tombstone else Not(IsTombstone()))
        if self.negated is not None:
            found.append(Not(self.negated.condition))
        return tuple(found)

    @property
    def condition(self) -> Condition:
        """The condition."""
        found = self.conditions
        return found[0] if len(found) == 1 else AllOf(found)
