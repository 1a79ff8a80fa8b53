"""Plugin of the Connect API, and its validation: a flat configuration is validated as a stream's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.config.documents.base import Location
from jobs.config.documents.judgement import judge
from jobs.config.documents.secrets import looks_secret
from jobs.config.settings.stream_rules import STREAM_RULES
from jobs.config.stream.models import StreamSpec
from orchestration.connect_api.connector import CLASS, VERSION, nested_config

_TOPICS: dict[tuple[str, ...], str] = {("source", "topics"): "topics", ("source", "topics_pattern"): "topics.regex"}
_NAMES = (CLASS, CLASS.rpartition(".")[2])


def is_plugin(name: str) -> bool:
    """Whether a name is that of the plugin: its class, or the class's last part."""
    return name in _NAMES


def plugins() -> list[dict[str, str]]:
    """Answer to `GET /connector-plugins`."""
    return [{"class": CLASS, "type": "sink", "version": VERSION}]


def validated(config: Mapping[str, str], base: Path) -> dict[str, Any]:
    """Answer to `PUT /connector-plugins/CLASS/config/validate`: each key with its errors.

    Args:
        config: A flat configuration, as in the answer to `GET /connectors/NAME/config`.
        base: The folder that relative paths in it start from.
    """
    context = {"base": base}
    _, found = judge(nested_config(config), StreamSpec, context=context, show_values=False, rules=STREAM_RULES)
    errors: dict[str, list[str]] = {key: [] for key in ("name", "connector.class", *config)}
    for location, text in found:
        errors.setdefault(_key_of(location, errors), []).append(text)
    if "connector.class" not in config:
        errors["connector.class"].append(f"is required and missing; it is {CLASS}")
    configs = [_described(key, config.get(key), problems) for key, problems in errors.items()]
    return {"name": CLASS, "error_count": sum(map(len, errors.values())), "groups": [], "configs": configs}


def _key_of(location: Location, keys: Mapping[str, object]) -> str:
    """Flat key of an error's location: the longest key in the configuration that contains it, else the location."""
    if location == ("stream",):
        return "name"
    for length in range(len(location), 0, -1):
        begin = location[:length]
        key = _TOPICS.get(tuple(map(str, begin)), ".".join(map(str, begin)))
        if key in keys:
            return key
    return ".".join(map(str, location)) or "name"


def _described(key: str, value: str | None, errors: list[str]) -> dict[str, Any]:
    required = key in ("name", "connector.class")
    shown = None if looks_secret(key) else value
    return {
        "definition": {
            "name": key,
            "type": "STRING",
            "required": required,
            "default_value": None,
            "importance": "HIGH" if required else "MEDIUM",
            "documentation": "",
            "group": None,
            "width": "NONE",
            "display_name": key,
            "dependents": [],
            "order_in_group": -1,
        },
        "value": {"name": key, "value": shown, "recommended_values": [], "errors": errors, "visible": True},
    }
