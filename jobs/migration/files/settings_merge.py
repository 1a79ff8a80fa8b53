"""Merge of imported settings into an existing `frazil.yaml`: what is missing is added, what stands there stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from jobs.base.errors import FrazilError


@dataclass(frozen=True, slots=True)
class Merged:
    """An existing file with what the import adds.

    Attributes:
        text: The file as it becomes.
        added: Places that were added, with dots.
        conflicts: Places where the file and the import have different values; the file's stay.
    """

    text: str
    added: tuple[str, ...]
    conflicts: tuple[str, ...]


def yaml_text(document: Mapping[str, Any]) -> str:
    """A mapping as YAML, in its own order."""
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120)


def merge_settings(text: str, settings: Mapping[str, Any], former: Mapping[str, Any] | None = None) -> Merged:
    """Add what a file of settings lacks. Its lines and comments stay as they are.

    Args:
        text: The existing file.
        settings: Settings of this import.
        former: Settings of the import before; a place where these agree with the new ones is a person's edit, and no
            conflict.

    Raises:
        FrazilError: The file is no YAML.
    """
    try:
        existing = yaml.safe_load(text) or {}
    except yaml.YAMLError:
        existing = None
    if not isinstance(existing, dict):
        raise FrazilError("frazil.yaml is no YAML, so nothing can be added to it.", fix="frazil validate")
    added: list[str] = []
    conflicts: list[str] = []
    for section, value in settings.items():
        if section not in existing:
            # An edit of a person that removed a whole section stays.
            if former is not None and former.get(section) == value:
                continue
            text = f"{text.rstrip()}\n{yaml_text({section: value})}" if text.strip() else yaml_text({section: value})
            added.append(section)
            continue
        lacking, differing = _compare(existing[section], value, section, (former or {}).get(section))
        if _is_enough(section, existing[section], value):
            differing = []
        conflicts += differing
        for key, part in lacking.items():
            inserted = _inserted(text, section, {key: part})
            if inserted is None:
                conflicts.append(f"{section}.{key}")
            else:
                text = inserted
                added.append(f"{section}.{key}")
    return Merged(text, tuple(added), tuple(conflicts))


def _compare(existing: Any, value: Any, at: str, former: Any) -> tuple[dict[str, Any], list[str]]:
    """Keys of a section that the file lacks, and places below it that differ."""
    if not isinstance(existing, dict) or not isinstance(value, dict):
        return {}, [] if existing == value or former == value else [at]
    lacking: dict[str, Any] = {}
    differing: list[str] = []
    for key, part in value.items():
        before = former.get(key) if isinstance(former, dict) else None
        if key not in existing:
            if before != part:
                lacking[key] = part
        elif isinstance(part, dict) and isinstance(existing[key], dict):
            below, deeper = _compare(existing[key], part, f"{at}.{key}", before)
            differing += [*deeper, *(f"{at}.{key}.{name}" for name in below)]
        elif existing[key] != part and before != part:
            differing.append(f"{at}.{key}")
    return lacking, differing


def _is_enough(section: str, existing: Any, value: Any) -> bool:
    """Whether Spark has at least the cores that the import asks for."""
    if section != "spark" or not isinstance(existing, dict) or not isinstance(value, dict):
        return False
    cores = [re.fullmatch(r"local\[(\d+)\]", str(one.get("master", ""))) for one in (existing, value)]
    return cores[0] is None or cores[1] is None or int(cores[0][1]) >= int(cores[1][1])


def _inserted(text: str, section: str, part: Mapping[str, Any]) -> str | None:
    """The file with a key below a section of several lines; None for a section on one line."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if not re.match(rf"{re.escape(section)}:\s*(#.*)?$", line):
            continue
        below = next((other for other in lines[at + 1 :] if other.strip() and not other.lstrip().startswith("#")), "")
        indent = below[: len(below) - len(below.lstrip())]
        if not indent:
            return None
        block = "".join(f"{indent}{each}\n" for each in yaml_text(part).splitlines())
        return "".join([*lines[: at + 1], block, *lines[at + 1 :]])
    return None
