"""Python program that reads a table's rows: imports, the catalog with references to secrets, and a scan.

People copy it into a file or a notebook, where it runs unchanged. It reads a secret from the environment variable or
the file that the settings name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.config.documents.secrets import REFERENCE
from jobs.config.services.catalog import OWN_CLASS, CatalogSettings
from jobs.config.services.catalog_properties import STORE_AUTHORITIES

_FILE_IO = "jobs.tables.write.renewed_file_io.StoreFileIO"


def python_code(catalog: CatalogSettings, table: str, scan: str) -> str:
    """Program that prints rows of a table.

    Args:
        scan: Calls that select the rows, such as `scan(snapshot_id=17)`.
    """
    properties = {name: _expression(text) for name, text in _properties(catalog).items()}
    nested = _nested(properties) if catalog.kind == "rest" else properties
    written = _written(nested)
    imports = [
        *(["import os"] if "os.environ" in written else []),
        *(["from pathlib import Path"] if "Path(" in written else []),
        *(["from urllib.parse import quote"] if "quote(" in written else []),
    ]
    lines = [*imports, *([""] if imports else []), "from pyiceberg.catalog import load_catalog", ""]
    lines += [f"catalog = load_catalog({_text(catalog.name)}, **{written})"]
    lines += [f"rows = catalog.load_table({_text(table)}).{scan}.to_arrow()", "print(rows)"]
    return "\n".join(lines)


def _properties(catalog: CatalogSettings) -> dict[str, str]:
    """Properties of the catalog as they are written, references included."""
    properties = {name: str(value) for name, value in catalog.properties.items()}
    if STORE_AUTHORITIES in properties and OWN_CLASS not in properties:
        properties["py-io-impl"] = _FILE_IO
    return properties


def _expression(text: str) -> str:
    """A text with references as a Python expression."""
    parts, at = list[str](), 0
    for found in REFERENCE.finditer(text):
        parts += [_text(text[at : found.start()])] if found.start() > at else []
        variable, file = found[1], found[2]
        parts.append(f"os.environ[{_text(variable)}]" if variable else f"Path({_text(file)}).read_text().rstrip()")
        at = found.end()
    parts += [_text(text[at:])] if at < len(text) or not parts else []
    return " + ".join(parts)


def _nested(properties: dict[str, str]) -> dict[str, Any]:
    """TLS properties as the nested mapping that PyIceberg reads."""
    flat: dict[str, Any] = {name: value for name, value in properties.items() if not name.startswith("ssl.")}
    tls: dict[str, Any] = {}
    if (authorities := properties.get("ssl.cabundle")) is not None:
        tls["cabundle"] = authorities
    client = {part: properties[f"ssl.client.{part}"] for part in ("cert", "key") if f"ssl.client.{part}" in properties}
    if client:
        tls["client"] = client
    return flat | ({"ssl": tls} if tls else {})


def _written(properties: dict[str, Any]) -> str:
    """The properties as a Python literal; a database's password stays within its URI."""
    if isinstance(password := properties.get("password"), str) and "uri" in properties:
        properties = {name: value for name, value in properties.items() if name != "password"}
        properties["uri"] = _with_password(properties["uri"], password)
    return "{\n" + "".join(_entries(properties, "    ")) + "}"


def _entries(properties: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, dict):
            yield f"{indent}{_text(name)}: {{\n"
            yield from _entries(value, f"{indent}    ")
            yield f"{indent}}},\n"
        else:
            yield f"{indent}{_text(name)}: {value},\n"


def _with_password(uri: str, password: str) -> str:
    """Expression of a URI with the password after its user; the last `@` ends the user."""
    head, at, place = uri.rpartition("@")
    if not at:
        return uri
    return f'{head}:" + quote({password}, safe="") + "@{place}'


def _text(text: str) -> str:
    """A Python string literal in double quotes."""
    return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
