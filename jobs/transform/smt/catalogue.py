"""Catalogue of single-message transforms: those that frazil takes by name, and what to write in place of the others."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from jobs.transform.columns import TransformProblem
from jobs.transform.smt.cast import CAST
from jobs.transform.smt.change_rows import CHANGES
from jobs.transform.smt.fields import FIELDS
from jobs.transform.smt.header_to_value import HEADER_TO_VALUE
from jobs.transform.smt.json_to_map import JSON_TO_MAP
from jobs.transform.smt.keys import KEYS, of_key
from jobs.transform.smt.known import Known
from jobs.transform.smt.mongo import MONGO
from jobs.transform.smt.new_record_state import NEW_RECORD_STATE
from jobs.transform.smt.outbox import OUTBOX
from jobs.transform.smt.records import RECORDS
from jobs.transform.smt.sink import SINK
from jobs.transform.smt.timestamp_converter import TIMESTAMP_CONVERTER

KNOWN: Mapping[str, Known] = {
    each.type: each
    for each in (
        CAST,
        *FIELDS,
        *RECORDS,
        TIMESTAMP_CONVERTER,
        NEW_RECORD_STATE,
        OUTBOX,
        *SINK,
        *CHANGES,
        JSON_TO_MAP,
        MONGO,
        HEADER_TO_VALUE,
        *KEYS,
    )
}
"""By class."""
_DEBEZIUM = "io.debezium.transforms."
REFUSED: Mapping[str, str] = {
    f"{_DEBEZIUM}Filter": (
        "its condition is a program in Groovy; write the condition as an SQL expression of a step, such as "
        "where: \"op <> 'd'\" for value.op != 'd'"
    ),
    f"{_DEBEZIUM}ContentBasedRouter": (
        'its topic.expression is a program in Groovy; write an SQL expression, such as route: {by: "case when '
        "region = 'eu' then 'eu' else 'rest' end\", tables: [{match: eu, table: orders.eu}, …]}"
    ),
}
"""Why a class is refused, and what to write."""


def known_smt(type_: str) -> Known:
    """What there is to know of a class.

    Args:
        type_: Its name in full, or without the package, as `Flatten$Value`.

    Raises:
        TransformProblem: It is unknown, or refused; with what to write.
    """
    found = _by_name(type_, KNOWN)
    if found is not None:
        return KNOWN[found]
    if refused := _by_name(type_, REFUSED):
        raise TransformProblem(f"{refused.rpartition('.')[2]}: {REFUSED[refused]}", ("type",))
    folded = {name.casefold(): name for each in (*KNOWN, *REFUSED) for name in (each, each.rpartition(".")[2])}
    near = difflib.get_close_matches(type_.casefold(), folded, n=1, cutoff=0.6)
    there = ", ".join(each.name for each in KNOWN.values() if not of_key(each.name))
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"there are {there}"
    raise TransformProblem(f"there is no transform '{type_}'; {hint}", ("type",))


def _by_name(type_: str, known: Mapping[str, object]) -> str | None:
    if type_ in known:
        return type_
    return next((each for each in known if each.rpartition(".")[2] == type_), None)
