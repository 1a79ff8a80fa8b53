"""References and templates in values: config providers of Kafka Connect, shells, Helm, Terraform and Jinja."""

from __future__ import annotations

import re

from jobs.config.documents.secrets import REFERENCE, holds_secret, literal_secret_problem

_PROVIDER = re.compile(r"\$\{(?P<provider>[A-Za-z0-9_-]+):(?:(?P<path>[^{}]*):)?(?P<name>[^{}:]*)\}")
_RENDERED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|(?<![?\\(])<[A-Za-z][\w .:-]*>|^\.\.\.$|^…$")
# Keys whose values have `${topic}` and the like of their own.
_OWN_PLACEHOLDERS = ("transforms.", "predicates.", "table.name.format", "collection.name.format")
# Templates that are a name alone; others may have a default in them, which may be a secret.
_NAME_ALONE = re.compile(r"\{\{-?\s*[\w.$]+\s*-?\}\}|\$\{\w+\}|\$\(\w+\)|\$\w+|<[\w .:-]+>|\.\.\.|…")
# A colon before an `@`, also with a slash between them, which passwords have; over HTTP any user may be a token.
_LOGIN = re.compile(r"://[^@\s]*:[^@\s]*@|^https?://[^/@\s]*@", re.IGNORECASE)
_PASSWORD_PART = re.compile(r"(passw|pwd|secret)\w*\s*=\s*[^\s$]", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"pwd|cookie|secret|connection-string|service-account-json|(en|de)cryption-key$", re.IGNORECASE
)
# With s3.sse.type: custom, s3.sse.key is the key itself; else it is a key's id in KMS.
_KEY_ID = re.compile(r"arn:.*|alias/.*|mrk-\w+|[0-9A-Fa-f-]{36}")
_PLAIN_HEADER = re.compile(r"header\.(x-iceberg-.*|user-agent|accept.*|content-type|host)", re.IGNORECASE)
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


def shown_templates(key: str, value: str) -> str:
    """The templates of a value for a message: names alone, because a default in one may be a secret."""
    found = templates_in(key, value)
    plain = not is_secret_property(key, "") and all(_NAME_ALONE.fullmatch(template) for template in found)
    return f"the template {', '.join(found)}" if plain else "a template"


def is_secret_property(name: str, value: str) -> bool:
    """Whether a property has a secret, by its name or in its value; a header does unless it is known to have none."""
    named = holds_secret(name) or _SECRET_NAME.search(name) is not None
    header = name.lower().startswith("header.") and _PLAIN_HEADER.fullmatch(name) is None
    own_key = name.lower().endswith("s3.sse.key") and _KEY_ID.fullmatch(value) is None
    return named or header or own_key or has_login(value) or literal_secret_problem(name, value) is not None


def has_login(address: str) -> bool:
    """Whether an address has a user with a password in it, or a part such as `password=…`."""
    patterns = (_LOGIN, _PASSWORD_PART)
    return any(p.search(address) for p in patterns) or literal_secret_problem("url", address) is not None


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
    # `${NAME:-default}` of a shell and `${NAME:default}` look alike, and a default may be the secret.
    shown = " ".join((path, name)) if path and provider.islower() and provider != "env" and name[:1] != "-" else ""
    return None, f"config provider {provider}{', ' if shown else ''}{shown}"
