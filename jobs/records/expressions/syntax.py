"""Syntax of an expression: what a text says, before anything is known of columns and types."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Span:
    """Where a part of an expression stands in its text."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Name:
    """A column."""

    span: Span
    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: a whole number as int, one with a point as Decimal, one with an exponent as float; None is NULL."""

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
    """A function or an operator with its arguments; operators have their mark or their words for a name."""

    span: Span
    name: str
    arguments: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """Conditions with their values, the first that is true counts, and the value without one."""

    span: Span
    branches: tuple[tuple[Syntax, Syntax], ...]
    otherwise: Syntax | None


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as an expression writes it: a name and the numbers in its brackets."""

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
