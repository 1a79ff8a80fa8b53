"""Changes of files: what a stream's file, or the settings, say otherwise than before, key by key. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.config.documents.base import row_meanings
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from orchestration.deployment_plan.change import Change, ChangeClass, Doer, Subject
from orchestration.deployment_plan.key_classes import SETTINGS_KEYS, STREAM_KEYS, KeyRule, key_rule

# Several ways to write them mean the same, and only what they mean is a change.
_WRITTEN_FREELY = ("decode", "transform", "rules", "changes")
_SHOWN = 60
_CONTEXT = 20

Difference = tuple[str, Any, Any]
"""A key with dots, and its values before and after, as JSON has them."""


def file_changes(former: StreamSpec, spec: StreamSpec, *, live: bool) -> list[Change]:
    """Changes of a stream's file.

    Args:
        former: Spec that the driver was launched with, or that of another file.
        spec: Spec in the current file.
        live: Whether the file is in effect, so that keys which concern no driver apply already.
    """
    changes = list[Change]()
    for key, before, after in _differences(former, spec):
        rule = key_rule(STREAM_KEYS, key)
        if live and rule.restarts and rule.kind is ChangeClass.METADATA:
            # The table itself says whether it is so.
            continue
        changes.append(_ruled(spec.stream, "file", key, rule, before, after, live))
    return [*changes, *_mirror_changes(former, spec, live)]


def changed_keys(former: StreamSpec, spec: StreamSpec) -> frozenset[str]:
    """The keys, with dots, of which the two say different things; `mirrors` as a whole."""
    keys = {key for key, _, _ in _differences(former, spec)}
    return frozenset(keys | ({"mirrors"} if former.mirrors != spec.mirrors else set()))


def _differences(former: StreamSpec, spec: StreamSpec) -> Iterator[Difference]:
    if former is spec or former == spec:
        # As a rule: of hundreds of streams few change.
        return
    before, after = (each.model_dump(mode="json", by_alias=True, exclude={"mirrors"}) for each in (former, spec))
    meanings = row_meanings(former), row_meanings(spec)
    for key, was, now in differences(before, after):
        if (
            key.split(".")[0] in _WRITTEN_FREELY
            and key_meaning(meanings[0], key) == key_meaning(meanings[1], key) != {}
        ):
            continue
        yield key, was, now


def key_meaning(meanings: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Hashed values of a key, or of the block around it; empty if none is hashed."""
    return {path: value for path, value in meanings.items() if f"{key}.".startswith(f"{path}.")}


def differences(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """The keys in which two documents differ. Lists are compared as a whole.

    Args:
        before: A mapping, or a value in one.
        after: The same of the other document.
        path: Path of both values.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from differences(before.get(name), after.get(name), (*path, str(name)))
    elif before != after:
        yield ".".join(path), before, after


def _ruled(
    stream: str | None,
    subject: Subject,
    place: str,
    rule: KeyRule,
    before: Any,
    after: Any,
    live: bool,
    table: str = "",
) -> Change:
    """Change by the rule of its key. Its actor follows from the class, and from whether a driver restarts."""
    fix = rule.fix.format(stream=stream, table=table) if rule.fix else None
    if rule.kind in (ChangeClass.REWRITE, ChangeClass.RESET, ChangeClass.BREAKING):
        doer = Doer.OPERATOR
    elif rule.kind is ChangeClass.NOTHING or (live and not rule.restarts):
        doer = Doer.NOBODY
    else:
        doer = Doer.APPLY if rule.restarts else Doer.FRAZIL
    return Change(stream, subject, place, rule.kind, doer, rule.sentence, fix, before, after)


def _mirror_changes(former: StreamSpec, spec: StreamSpec, live: bool) -> Iterator[Change]:
    before, after = ({each.table: each for each in one.mirrors} for one in (former, spec))
    for table in dict.fromkeys([*before, *after]):
        yield from _of_mirror(spec.stream, table, before.get(table), after.get(table), live)


def _of_mirror(stream: str, table: str, was: Mirror | None, now: Mirror | None, live: bool) -> Iterator[Change]:
    if now is None:
        said = f"mirror {table} is merged into no more; its table stays"
        yield Change(stream, "mirror", table, ChangeClass.RESTART, Doer.APPLY, said)
    elif was is None:
        said = f"mirror {table} is made by its first merge, from all changes that the changelog has"
        fix = None if now.every is not None else f"frazil mirror run {stream} --table {table}"
        doer = Doer.FRAZIL if now.every is not None else Doer.OPERATOR
        yield Change(stream, "mirror", table, ChangeClass.RESTART, doer, said, fix)
    else:
        old, new = (each.model_dump(mode="json", by_alias=True) for each in (was, now))
        for key, before, after in differences(old, new):
            rule = key_rule(STREAM_KEYS, f"mirrors.{key}")
            yield _ruled(stream, "mirror", f"mirrors.{key}", rule, before, after, live, table)


def settings_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Changes of the settings. Secrets are compared by their references.

    Args:
        before: Settings of the other side, with the names of `frazil.yaml`, as JSON has them.
        after: Those of the deployment.
    """
    return [
        _ruled(None, "settings", key, key_rule(SETTINGS_KEYS, key), was, now, False)
        for key, was, now in differences(dict(before), dict(after))
    ]


def shown_value(value: Any) -> str:
    """A value in a line of text; of a long one the beginning."""
    if value is None:
        return "none"
    text = _text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def shown_pair(before: Any, after: Any) -> tuple[str, str]:
    """Two values of a key, each in a line of text; of long ones the part in which they differ."""
    texts = _text(before), _text(after)
    if max(map(len, texts)) <= _SHOWN or before is None or after is None:
        return shown_value(before), shown_value(after)
    unlike = (at for at, (was, now) in enumerate(zip(*texts, strict=False)) if was != now)
    same = max(0, next(unlike, min(map(len, texts))) - _CONTEXT)
    old, new = (f"…{text[same:]}" if same else text for text in texts)
    return shown_value(old), shown_value(new)


def _text(value: Any) -> str:
    return " ".join((value if isinstance(value, str) else json.dumps(value, default=str)).split())


def dagster_changes(
    former: StreamSpec | None, spec: StreamSpec | None, settings: Settings, *, live: bool
) -> list[Change]:
    """Changes of the assets and checks in Dagster that follow from the files.

    Args:
        former: The stream before; None of a new one.
        spec: The stream now; None of one that is removed.
        settings: Asset keys begin with the catalog's name.
        live: Whether the file is in place, so that Dagster loads it by itself.
    """
    either = spec or former
    if either is None:
        return []
    before, after = (set(_definitions(each, settings)) if each else set[str]() for each in (former, spec))
    said = [
        f"{sign} {name}" for sign, names in (("+", after - before), ("-", before - after)) for name in sorted(names)
    ]
    if not said:
        return []
    sentence = f"Dagster's definitions: {', '.join(said)}"
    doer = Doer.NOBODY if live else Doer.FRAZIL
    return [Change(either.stream, "dagster", "definitions", ChangeClass.METADATA, doer, sentence)]


def _definitions(spec: StreamSpec, settings: Settings) -> Iterator[str]:
    catalog = settings.catalog.name
    for target in spec.targets:
        yield f"asset {catalog}/{target.name.replace('.', '/')}"
        if spec.contract is not None:
            yield from (f"check {each.name} of {target.name}" for each in spec.contract.about(target))
    for mirror in spec.mirrors:
        yield f"asset {catalog}/{mirror.table.replace('.', '/')}"
    if spec.freshness is not None:
        yield f"freshness policy of {spec.table.name}"
    if spec.publish is not None:
        yield f"check of publications of {spec.table.name}"
    if spec.event_time is not None and spec.event_time.closes is not None:
        yield f"asset of closed {spec.event_time.closes}s of {spec.table.name}"
    if spec.contract is not None and spec.contract.check is not None and spec.contract.check.schedule is not None:
        yield "schedule of the contract"
