"""Former names of transforms: classes and properties of earlier releases, with their present names and meanings.

Connectors keep their configuration for years. `ReplaceField` had `blacklist` and `whitelist` before Connect 2.7,
Debezium's unwrap had two properties in place of one before 2.5, and the Iceberg sink's transforms had another package
before they moved to Apache. A former name has its former meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobs.records.transforms.columns import TransformProblem

_PACKAGES: Mapping[str, str] = {
    "io.tabular.iceberg.connect.transforms.": "org.apache.iceberg.connect.transforms.",
}
_REPLACE_FIELD: Mapping[str, str] = {"blacklist": "exclude", "whitelist": "include"}

_HANDLING, _TOMBSTONES, _MODE = "delete.tombstone.handling.mode", "drop.tombstones", "delete.handling.mode"
_UNWRAPPED: Mapping[tuple[str, bool], str] = {
    # Debezium 2.4, ExtractNewRecordState: the action for a deletion, and whether the tombstone behind it is dropped. A
    # tombstone that it keeps gives no row of a table, so two pairs are one mode here.
    ("drop", True): "drop",
    ("drop", False): "drop",
    ("none", True): "tombstone",
    ("none", False): "tombstone",
    ("rewrite", True): "rewrite",
    ("rewrite", False): "rewrite-with-tombstone",
}
"""The present mode for a former mode, and for whether tombstones are dropped."""


def present_class(type_: str) -> str:
    """Return the present name of a class; any other name unchanged.

    Args:
        type_: In full, or without the package.
    """
    for former, present in _PACKAGES.items():
        if type_.startswith(former):
            return present + type_.removeprefix(former)
    return type_


def present_properties(smt: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a transform under their present names.

    Args:
        smt: Short name of its class, such as `ReplaceField$Value`.
        given: Names and values, as texts.

    Raises:
        TransformProblem: A former and the present name are both given, or a former one has an invalid value.
    """
    translate = _TRANSLATIONS.get(smt.partition("$")[0])
    return translate(given) if translate is not None else dict(given)


def _replace_field(given: Mapping[str, str]) -> dict[str, str]:
    for former, present in _REPLACE_FIELD.items():
        if former in given and present in given:
            raise TransformProblem(f"{former} is the former name of {present}, which is given as well", (former,))
    return {_REPLACE_FIELD.get(key, key): value for key, value in given.items()}


def _new_record_state(given: Mapping[str, str]) -> dict[str, str]:
    former = [key for key in (_MODE, _TOMBSTONES) if key in given]
    if not former:
        return dict(given)
    if _HANDLING in given:
        raise TransformProblem(f"{_HANDLING} replaces {former[0]}, and both are given", (former[0],))
    mode, drops = given.get(_MODE, "drop").strip().lower(), given.get(_TOMBSTONES, "true").strip().lower()
    if drops not in ("true", "false"):
        raise TransformProblem(f"{_TOMBSTONES} is true or false, not '{given[_TOMBSTONES]}'", (_TOMBSTONES,))
    if (mode, drops == "true") not in _UNWRAPPED:
        raise TransformProblem(f"{_MODE} is drop, rewrite or none, not '{given[_MODE]}'", (_MODE,))
    left = {key: value for key, value in given.items() if key not in former}
    return left | {_HANDLING: _UNWRAPPED[mode, drops == "true"]}


_TRANSLATIONS: Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]] = {
    "ReplaceField": _replace_field,
    "ExtractNewRecordState": _new_record_state,
}
