"""The words of schema text: types, their other names, and how JSON carries them."""

from __future__ import annotations

from difflib import get_close_matches

PRIMITIVE_NAMES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamptz",
    "string",
    "binary",
)

TYPE_ALIASES = {"bigint": "long", "array": "list"}

OTHER_TYPE_NAMES = {
    "bool": "boolean",
    "integer": "int",
    "int32": "int",
    "smallint": "int",
    "tinyint": "int",
    "int64": "long",
    "real": "float",
    "float64": "double",
    "number": "decimal(P,S)",
    "numeric": "decimal(P,S)",
    "varchar": "string",
    "char": "string",
    "text": "string",
    "str": "string",
    "uuid": "string",
    "datetime": "timestamp",
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamptz",
    "bytes": "binary",
    "row": "struct",
    "record": "struct",
    "object": "struct",
}
"""What other systems call a type, for the suggestion in an error."""

_EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")

ENCODINGS: dict[str, tuple[str, ...]] = {
    "timestamp": ("iso", *_EPOCHS),
    "timestamptz": ("iso", *_EPOCHS),
    "date": ("iso", "epoch_days"),
    "decimal": ("number", "text"),
    "binary": ("base64", "hex"),
}
"""How JSON may carry a type; the first is the default, other types have one way only."""

KNOWN_TYPES = ", ".join(PRIMITIVE_NAMES).replace("decimal", "decimal(P,S)") + ", struct<…>, list<…> and map<string, …>"


def unknown_type(word: str) -> str:
    """Says that a word is not a type, with the nearest one that is."""
    names = [*PRIMITIVE_NAMES, "struct", "list", "map", *TYPE_ALIASES]
    meant = OTHER_TYPE_NAMES.get(word.lower()) or next(iter(get_close_matches(word.lower(), names, n=1)), None)
    hint = f"did you mean '{meant}'?" if meant else f"the types are {KNOWN_TYPES}."
    return f"'{word}' is not a type; {hint}"
