"""Types in expressions: their names, and the common type of several values."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from pyiceberg import types as ice

from jobs.records.expressions.nodes import Literal, Node
from jobs.records.expressions.problem import Mismatch
from jobs.records.schema.iceberg_schema import schema_text

INT, LONG, FLOAT, DOUBLE = ice.IntegerType(), ice.LongType(), ice.FloatType(), ice.DoubleType()
BOOLEAN, STRING, BINARY, UUID = ice.BooleanType(), ice.StringType(), ice.BinaryType(), ice.UUIDType()
DATE, TIME, TIMESTAMP, TIMESTAMPTZ = ice.DateType(), ice.TimeType(), ice.TimestampType(), ice.TimestamptzType()

MOST_DIGITS = 38
"""Most digits of a decimal."""
DIGITS = {"int": 10, "long": 19}
"""Most digits of an integer, by type."""
_NAMED: dict[str, ice.IcebergType] = {
    **dict.fromkeys(["int", "integer"], INT),
    **dict.fromkeys(["long", "bigint"], LONG),
    **dict.fromkeys(["float", "real"], FLOAT),
    "double": DOUBLE,
    **dict.fromkeys(["boolean", "bool"], BOOLEAN),
    **dict.fromkeys(["string", "text", "varchar"], STRING),
    **dict.fromkeys(["binary", "bytes"], BINARY),
    "uuid": UUID,
    "date": DATE,
    "time": TIME,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
}
_DECIMAL_NAMES = ("decimal", "numeric")


def name_of(kind: ice.IcebergType) -> str:
    """Return the name of a type in schema text."""
    return "null" if isinstance(kind, ice.UnknownType) else schema_text(kind)


def named_type(name: str, numbers: tuple[int, ...]) -> ice.IcebergType:
    """Return the type that a CAST names.

    Raises:
        Mismatch: The name is unknown, or its parameters are wrong.
    """
    if name in _DECIMAL_NAMES:
        precision, scale = (*numbers, 0)[:2] if len(numbers) in (1, 2) else (0, 0)
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise Mismatch("a decimal is written as decimal(12,2): up to 38 digits, of which so many behind the point")
        return ice.DecimalType(precision, scale)
    if name not in _NAMED:
        near = get_close_matches(name, [*_NAMED, *_DECIMAL_NAMES], n=1)
        meant = f"did you mean {near[0]}?" if near else f"the types are {', '.join(_NAMED)} and decimal(P,S)"
        raise Mismatch(f"'{name}' is no type that a cast gives; {meant}")
    if numbers:
        raise Mismatch(f"{name} has no numbers in brackets; a text has no longest length")
    return _NAMED[name]


def is_integer(kind: ice.IcebergType) -> bool:
    """Whether values are integers of 32 or 64 bits."""
    return isinstance(kind, (ice.IntegerType, ice.LongType))


def is_floating(kind: ice.IcebergType) -> bool:
    """Whether values are binary floating-point numbers."""
    return isinstance(kind, (ice.FloatType, ice.DoubleType))


def is_number(kind: ice.IcebergType) -> bool:
    """Whether values are numbers."""
    return is_integer(kind) or is_floating(kind) or isinstance(kind, ice.DecimalType)


def decimal_for(node: Node) -> ice.DecimalType:
    """Return the decimal type that holds every value of an exact number; for a literal the smallest one."""
    kind = node.type
    if isinstance(kind, ice.DecimalType):
        return kind
    if isinstance(node, Literal) and node.value.is_valid:
        return ice.DecimalType(len(str(abs(node.value.as_py()))), 0)
    return ice.DecimalType(DIGITS[str(kind)], 0)


def common_number(nodes: Sequence[Node]) -> ice.IcebergType:
    """Return the common type of numbers.

    Raises:
        Mismatch: No decimal of 38 digits can hold all of the decimals.
    """
    kinds = [each.type for each in nodes]
    if any(map(is_floating, kinds)):
        return FLOAT if all(isinstance(kind, ice.FloatType) for kind in kinds) else DOUBLE
    if all(map(is_integer, kinds)):
        return LONG if any(isinstance(kind, ice.LongType) for kind in kinds) else INT
    decimals = [decimal_for(each) for each in nodes]
    scale = max(each.scale for each in decimals)
    precision = scale + max(each.precision - each.scale for each in decimals)
    if precision > MOST_DIGITS:
        raise Mismatch(f"no decimal holds {' and '.join(map(name_of, decimals))}; cast one of them to fewer digits")
    return ice.DecimalType(precision, scale)


def common_type(nodes: Sequence[Node]) -> ice.IcebergType:
    """Return the common type of several expressions.

    Beside a date, time or uuid, a literal text becomes one.

    Raises:
        Mismatch: There is no common type.
    """
    known = [each for each in nodes if not isinstance(each.type, ice.UnknownType)]
    if not known:
        return STRING
    kinds = [each.type for each in known]
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if all(map(is_number, kinds)):
        return common_number(known)
    others = [each.type for each in known if not (isinstance(each, Literal) and isinstance(each.type, ice.StringType))]
    if others and all(kind == others[0] for kind in others) and isinstance(others[0], FROM_TEXT):
        return others[0]
    if all(isinstance(kind, (ice.DateType, ice.TimestampType)) for kind in others):
        return TIMESTAMP
    names = " and ".join(dict.fromkeys(map(name_of, kinds)))
    hint = (
        "; say the zone of the timestamp by AT TIME ZONE"
        if {str(kind) for kind in kinds} == {"timestamp", "timestamptz"}
        else "; cast one to the other's type"
    )
    raise Mismatch(f"needs values of one type, found {names}{hint}")


FROM_TEXT = (ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestamptzType, ice.UUIDType)
"""Types that a literal text becomes beside a value of them."""
