"""Blocks `transform` and `predicates` of a stream: the connector's chain of single-message transforms."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import ValidationError

from jobs.config.steps.smt_step import SmtStep
from jobs.migration.conversion.draft import Draft, Yaml
from jobs.migration.conversion.source import names_in
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.former_names import present_properties
from jobs.records.transforms.smt.smt import known_smt

_SINK = re.compile(r"(io\.tabular\.iceberg\.connect|org\.apache\.iceberg\.kafka\.connect)\.transforms\.(\w+)")
_STRICT = "values that Connect changes in silence are dead letters; with lenient: true they are changed"
_OLD_NAMES = {"blacklist": "exclude", "whitelist": "include"}


def transform_blocks(draft: Draft, replaced: Mapping[str, str] | None = None) -> tuple[list[Yaml], Yaml]:
    """Steps of `transform`, and `predicates`. Answers `transforms*` and `predicates*`.

    A step of a class that frazil does not know is left out and asked for.

    Args:
        draft: Draft of the connector.
        replaced: Aliases that another part of the stream stands for, with its place, such as `changes`.

    Returns:
        Both empty if there are no transforms.
    """
    keys = draft.keys
    aliases = names_in(keys.get("transforms"))
    steps: list[Yaml] = []
    predicates: Yaml = {}
    for alias in aliases:
        above = f"transforms.{alias}."
        properties = {key.removeprefix(above): keys.raw(key) for key in keys.keys(above)}
        if replaced and alias in replaced:
            for key in properties:
                keys.same(above + key, replaced[alias])
            continue
        at = f"transform[{len(steps)}].smt"
        step = _step(draft, alias, properties, at)
        if step is None:
            continue
        for key in properties:
            if not keys.is_answered(above + key):
                keys.same(above + key, f"{at}.{key}")
        if name := step.get("predicate"):
            predicates |= _predicate(draft, name)
            if name not in predicates:
                del step["predicate"]
                step.pop("negate", None)
        steps.append({"smt": step})
    if keys.has("transforms"):
        keys.approximated("transforms", _said(draft, aliases), "transform" if steps else None)
    if keys.has("predicates"):
        keys.same("predicates", "predicates")
    for key in [*keys.keys("transforms."), *keys.keys("predicates.")]:
        if not keys.is_answered(key):
            keys.no_effect(key, f"its alias is not listed under {key.partition('.')[0]}, or no transform names it")
    return steps, predicates


def transform_classes(draft: Draft) -> dict[str, str]:
    """Class of each listed transform by alias, in order, by the name that frazil knows."""
    keys = draft.keys
    aliases = names_in(keys.get("transforms"))
    return {alias: _known_name(keys.raw(f"transforms.{alias}.type"))[0] for alias in aliases}


def _said(draft: Draft, aliases: list[str]) -> str:
    translated = [a for a in aliases if _SINK.match(draft.keys.raw(f"transforms.{a}.type"))]
    if translated:
        return (
            "the class of the older package is the same as org.apache.iceberg.connect.transforms.…, "
            f"or changes: {{envelope: debezium}}; {_STRICT}"
        )
    return _STRICT


def _known_name(written: str) -> tuple[str, bool]:
    """A class as frazil knows it, and whether a shell has taken a part of its name away."""
    name = written.replace("\\$", "$").strip()
    if match := _SINK.fullmatch(name):
        name = f"org.apache.iceberg.connect.transforms.{match[2]}"
    try:
        return known_smt(name).type, False
    except TransformProblem:
        pass
    try:
        known_smt(f"{name}$Value")
    except TransformProblem:
        return name, False
    return f"{name}$Value", True


def _step(draft: Draft, alias: str, properties: Mapping[str, str], at: str) -> Yaml | None:
    above, keys = f"transforms.{alias}.", draft.keys
    given = dict(properties)
    written = given.pop("type", "")
    if not written:
        draft.ask(f"the transform {alias} has no type, so Connect refuses the connector", blocks=True)
        _leave_out(draft, above, properties, "of a transform without type")
        return None
    if any(keys.is_open(above + key) for key in properties):
        for key in properties:
            if keys.is_open(above + key):
                keys.decide(above + key, "a template: render it first, or write the value into the step")
        draft.ask(f"the transform {alias} has a template in it and is left out: add it to transform", blocks=True)
        _leave_out(draft, above, properties, "of a transform that is left out")
        return None
    name, cut = _known_name(written)
    if cut:
        keys.decide(f"{above}type", "a shell has taken $Key or $Value from the name; it is written as $Value")
        draft.ask(f"is the transform {alias} of keys or of values? A shell has taken the end of its class", blocks=True)
    predicate, negate = given.pop("predicate", None), given.pop("negate", None)
    for key in _unread_properties(name, given):
        del given[key]
        keys.no_effect(above + key, f"{name.rpartition('.')[2]} reads no property of that name")
    step: Yaml = {"type": name, **given}
    try:
        SmtStep.model_validate(step)
    except ValidationError:
        keys.impossible(f"{above}type", "no transform of frazil; write the step as SQL, or as a function in Python")
        draft.ask(
            f"the transform {alias} ({name}) is left out, because frazil does not take it: write it as a step of "
            "transform, such as compute, where or python",
            blocks=True,
        )
        _leave_out(draft, above, properties, "of a transform that is left out")
        return None
    for old, new in _OLD_NAMES.items():
        if old in given:
            keys.approximated(above + old, f"{new} of newer releases, and Kafka 4 ignores it", f"{at}.{old}")
    if predicate:
        step["predicate"] = predicate
    if negate is not None:
        step["negate"] = negate.lower() == "true"
    return step


def _unread_properties(name: str, given: Mapping[str, str]) -> list[str]:
    """Properties that a transform does not read; Connect takes them in silence. None of a class that is unknown."""
    unread: list[str] = []
    for key, value in given.items():
        try:
            known = known_smt(name)
            if not present_properties(known.name, {key: value}).keys() <= {*known.properties}:
                unread.append(key)
        except TransformProblem:
            # The class is unknown, or a former name has a wrong value.
            continue
    return unread


def _leave_out(draft: Draft, above: str, properties: Mapping[str, str], said: str) -> None:
    for key in properties:
        if not draft.keys.is_answered(above + key):
            draft.keys.impossible(above + key, said)


def _predicate(draft: Draft, alias: str) -> Yaml:
    keys, above = draft.keys, f"predicates.{alias}."
    block = {key.removeprefix(above): keys.raw(key) for key in keys.keys(above)}
    if not block:
        draft.ask(f"the predicate {alias} is nowhere, so Connect refuses the connector", blocks=True)
        return {}
    try:
        SmtStep.model_validate({"type": "Filter", "predicate": block})
    except ValidationError:
        for key in block:
            keys.impossible(above + key, "no predicate of frazil; write the condition of the step as when: SQL")
        draft.ask(f"the predicate {alias} is none of frazil's: write the condition of its steps as when", blocks=True)
        return {}
    for key in block:
        if not keys.is_answered(above + key):
            keys.same(above + key, f"predicates.{alias}.{key}")
    return {alias: block}
