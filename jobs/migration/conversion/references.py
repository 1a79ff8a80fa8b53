"""References and templates in values: config providers of Kafka Connect, shells, Helm, Terraform and Jinja."""

from __future__ import annotations

import re

from jobs.config.documents.secrets import REFERENCE

_PROVIDER = re.compile(r"\$\{(?P<provider>[A-Za-z0-9_-]+):(?:(?P<path>[^{}]*):)?(?P<name>[^{}:]*)\}")
_RENDERED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|(?<![?\\(])<[A-Za-z][\w .:-]*>|^\.\.\.$|^…$")
# Keys whose values have `${topic}` and the like of their own.
_OWN_PLACEHOLDERS = ("transforms.", "predicates.", "table.name.format", "collection.name.format")
_SHELL = re.compile(r"\$\{[A-Za-z_][^{}:]*\}|\$\([A-Za-z_][^)]*\)|^\$[A-Z_][A-Z0-9_]*$")


def has_template(key: str, value: str) -> bool:
    """Whether a value is a template that something renders before Connect reads it, or a placeholder such as `<host>`.

    Args:
        key: Key of the value. Transforms have `${topic}` and `$1` of their own.
        value: The value.
    """
    return bool(templates_in(key, value))


def templates_in(key: str, value: str) -> list[str]:
    """The templates and placeholders of a value as they are written, such as `{{ .Values.uri }}`."""
    patterns = [_RENDERED] if key.startswith(_OWN_PLACEHOLDERS) else [_RENDERED, _SHELL]
    return [match.group() for pattern in patterns for match in pattern.finditer(value)]


def has_reference(value: str) -> bool:
    """Whether a value has a reference of a config provider in it, such as `${file:/x.properties:key}`."""
    return _PROVIDER.search(value) is not None


def provider_reference(value: str) -> tuple[str | None, str]:
    """Reference of frazil's that a value already is, and where its secret is now.

    Args:
        value: A secret in the clear, a template, or a config provider's `${provider:path:key}`.

    Returns:
        `${env:NAME}` if the value is exactly that, else None; and a phrase such as `key k of the file /x.properties`.
    """
    match = _PROVIDER.fullmatch(value)
    if match is None:
        if has_reference(value):
            return None, "text with a reference of a config provider in it"
        return None, "template" if has_template("", value) else "in the clear"
    provider, path, name = match["provider"], match["path"] or "", match["name"]
    if provider == "env" and not path and REFERENCE.fullmatch(value):
        return value, f"environment variable {name}"
    if provider in ("secrets", "configmaps"):
        return None, f"{provider.removesuffix('s')} {path}, key {name}"
    if provider == "file":
        return None, f"key {name} of the file {path}"
    if provider == "directory":
        return None, f"file {name} in the folder {path}"
    return None, f"config provider {provider}, {' '.join(part for part in (path, name) if part)}"
