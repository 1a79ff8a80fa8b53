"""Places of keys in a stream's file: each transform of a key gets the column that `decode.key` puts keys into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, model_validator

from jobs.formats.primitive.schema import COLUMN_TYPES
from jobs.spec.base import SpecModel, problems_at
from jobs.spec.decode import Decode
from jobs.transform.smt.keys import KEY_COLUMN, of_key

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
