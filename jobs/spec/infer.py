"""Infer block of the JSON format: what new columns become where JSON does not say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from jobs.schema.declared import Primitive
from jobs.schema.parser import parse_schema
from jobs.schema.tokens import SchemaTextError
from jobs.spec.base import Flag, SpecModel


def _fractions(value: object) -> str:
    try:
        kind = parse_schema(f"n {value}").fields[0].type
    except SchemaTextError:
        kind = None
    if not isinstance(kind, Primitive) or kind.name not in ("double", "decimal") or str(kind).endswith("text"):
        raise ValueError("must be double, or decimal(P,S) such as decimal(18,4)")
    return str(kind)


class Infer(SpecModel):
    """What new columns become where JSON does not say.

    Args:
        fractions: Numbers with a fraction or an exponent: ``double``, or ``decimal(P,S)``.
        times: Whether texts that look like times, or days, become timestamps, or dates.
        objects: What objects become.
    """

    fractions: Annotated[str, BeforeValidator(_fractions)] = "double"
    times: Flag = False
    objects: Literal["struct", "map"] = "struct"
