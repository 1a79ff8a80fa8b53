"""Syntax tree of an expression, before columns and types are resolved."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Span:
    """Place of a part of an expression in its text."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Name:
    """A column."""

    span: Span
    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: an integer as int, a number with a point as Decimal, one with an exponent as float; None is NULL."""

    span: Span
    value: int | Decimal | float | str | bytes | bool | None


@dataclass(frozen=True, slots=True)
class Duration:
    """An INTERVAL: months, and microseconds beside them."""

    span: Span
    months: int
    micros: int


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct."""

    span: Span
    of: Syntax
    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A function or an operator with its arguments; the name of an operator is its mark or its words."""

    span: Span
    name: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """Conditions with their values, of which the first true one counts, and the default value."""

    span: Span
    branches: tuple[tuple[Syntax, Syntax], ...]
    otherwise: Syntax | None


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type in an expression: a name and the numbers in its brackets."""

    span: Span
    name: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CastTo:
    """A CAST, or a TRY_CAST, which gives null instead of a failure."""

    span: Span
    of: Syntax
    type: TypeName
    trying: bool


Syntax = Name | Constant | Duration | Member | Apply | CaseWhen | CastTo
