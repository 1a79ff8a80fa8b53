"""Calls of kernels with typed arguments; calls with literals only are evaluated at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.expressions.nodes import (
    Call,
    Literal,
    Node,
    arrow_of,
)
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import name_of
from jobs.records.expressions.values import (
    FAILURES,
    Fault,
    Kernel,
    Values,
    applied,
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions may call.

    Attributes:
        form: Form of a call: `substr(text, start [, length])`.
        meaning: Description of the result, in half a sentence.
        bind: Returns the node of a call, from its arguments and its text in the expression. Raises Mismatch.
        least, most: Numbers of arguments; None for any number.
    """

    form: str
    meaning: str
    bind: Callable[[Sequence[Node], str], Node]
    least: int
    most: int | None

    @property
    def name(self) -> str:
        """Name of the function; calls ignore case."""
        return self.form.partition("(")[0]


def function(form: str, meaning: str, bind: Callable[[Sequence[Node], str], Node]) -> Function:
    """Return a function that takes as many arguments as its form shows."""
    inside = form.partition("(")[2].rstrip(")")
    needed, _, optional = inside.partition("[")
    least = len([each for each in needed.split(",") if each.strip()])
    if "…" in inside:
        return Function(form, meaning, bind, least, None)
    return Function(form, meaning, bind, least, least + optional.count(",") + (bool(optional) and "," not in optional))


def call(
    kernel: Kernel,
    arguments: Sequence[Node],
    kind: ice.IcebergType,
    expression: str,
    *,
    why: str | None = None,
    nullable: bool | None = None,
) -> Node:
    """Return a call of a kernel.

    Args:
        kernel: Picklable; its result is null if an argument is null, unless `nullable` is given.
        arguments: Arguments in the types that the kernel takes.
        kind: Type of the result.
        expression: Text of the call in the expression.
        why: Message of a dead letter if the kernel fails; by default the kernel's message.
        nullable: Whether the result may be null; by default it may if an argument may.

    Raises:
        Mismatch: All arguments are literals, and the kernel fails for them.
    """
    if nullable is None:
        nullable = any(each.nullable for each in arguments)
    fault = Fault(expression, why)
    literals = [each for each in arguments if isinstance(each, Literal)]
    _refuse_unworkable(kernel, arguments, whole=len(literals) == len(arguments))
    if len(literals) < len(arguments) or not arguments:
        return Call(kernel, tuple(arguments), kind, nullable, fault)
    made = applied(kernel, [Values(pa.repeat(each.value, 1)) for each in literals], fault)
    if made.failed:
        raise Mismatch(f"it fails whatever the row: {made.failed[0].partition(' fails: ')[2]}")
    array = made.array
    return Literal(array[0].cast(arrow_of(kind)) if isinstance(array, pa.Array) else array, kind)


def _refuse_unworkable(kernel: Kernel, arguments: Sequence[Node], *, whole: bool) -> None:
    """Refuse arguments that make a kernel fail for every row: try nulls beside the literals (all null if `whole`)."""
    nulls = [
        each.value if isinstance(each, Literal) and not whole else pa.nulls(1, arrow_of(each.type))
        for each in arguments
    ]
    try:
        kernel(*nulls)
    except FAILURES as problem:
        kinds = " and ".join(dict.fromkeys(name_of(each.type) for each in arguments))
        said = str(problem).partition("\n")[0]
        raise Mismatch(f"it cannot be worked out of {kinds}" + (f": {said}" if said else "")) from None


def literal(value: object, kind: ice.IcebergType) -> Literal:
    """Return a literal of a type."""
    return Literal(pa.scalar(value, arrow_of(kind)), kind)


def constant(node: Node, what: str) -> object:
    """Return the value of an argument that has to be a literal.

    Raises:
        Mismatch: The argument is no literal.
    """
    if not isinstance(node, Literal) or not node.value.is_valid:
        raise Mismatch(f"needs {what} that is written in the expression")
    return node.value.as_py()
