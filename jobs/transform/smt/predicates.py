"""Predicates of Kafka Connect, as conditions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from jobs.transform.columns import TransformProblem
from jobs.transform.condition import Condition, HasHeader, IsTombstone, TopicMatches
from jobs.transform.smt.java_regex import java_pattern
from jobs.transform.smt.properties import Properties

_PACKAGE = "org.apache.kafka.connect.transforms.predicates."
_PROPERTIES = {"TopicNameMatches": ("pattern",), "HasHeaderKey": ("name",), "RecordIsTombstone": ()}


def predicate(block: Mapping[str, str]) -> Condition:
    """The condition of a predicate.

    Args:
        block: Its `type`, in full or by the short name, and its properties.

    Raises:
        TransformProblem: Type or a property is unknown; placed below `predicate`.
    """
    kind = block.get("type", "").removeprefix(_PACKAGE)
    if kind not in _PROPERTIES:
        near = difflib.get_close_matches(kind, _PROPERTIES, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(_PROPERTIES)}"
        raise TransformProblem(f"there is no predicate '{block.get('type', '')}'; {hint}", ("predicate", "type"))
    try:
        given = {key: each for key, each in block.items() if key != "type"}
        properties = Properties(given, kind, _PROPERTIES[kind])
        if kind == "RecordIsTombstone":
            return IsTombstone()
        if kind == "HasHeaderKey":
            return HasHeader(properties.needed("name"))
        # As Java has it, classes such as \w are ASCII.
        return TopicMatches(f"(?a:{java_pattern(properties.needed('pattern'), 'pattern').pattern})")
    except TransformProblem as problem:
        raise TransformProblem(problem.message, ("predicate", *problem.place)) from None
