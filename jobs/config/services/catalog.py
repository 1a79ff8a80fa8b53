"""Catalog block of the settings: the Iceberg catalog, by PyIceberg's properties."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, model_validator

from jobs.config.documents.base import Problems, SpecModel
from jobs.config.documents.secrets import (
    Properties,
    Secret,
    hidden_in,
    literal_secret_problem,
    revealed,
)
from jobs.config.documents.validation import suggestion
from jobs.config.documents.yaml_document import LocatedText
from jobs.config.services.catalog_properties import CATALOG_TYPES, STORE_AUTHORITIES, nearest_property

OWN_CLASS = "py-catalog-impl"
DATABASES = ("sqlite", "postgresql", "mysql")
_HTTP = ("http", "https")


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", value):
        raise ValueError("must be a name of letters, digits and _, such as frazil")
    return value


class CatalogSettings(SpecModel):
    """The Iceberg catalog: its name (the first part of every asset key) and PyIceberg's properties of it.

    Beside PyIceberg's there is `password`, of the user in the URI of a database, and ``ssl.cabundle``,
    ``ssl.client.cert`` and ``ssl.client.key``, which PyIceberg takes as nested mappings; and ``s3.ssl.cabundle``, the
    authorities of the store.

    Args:
        name: Name of the catalog, the first part of every asset key.
        properties: PyIceberg's catalog properties, such as ``type`` and ``uri``. Secrets are references.
    """

    example = "{properties: {type: rest, uri: 'https://catalog.example'}}"

    name: Annotated[str, AfterValidator(_name)] = "frazil"
    properties: Properties

    @model_validator(mode="before")
    @classmethod
    def _hidden(cls, value: Any) -> Any:
        """Replace secrets that earlier releases allowed in the URI of a database by references."""
        properties = value.get("properties") if isinstance(value, dict) else None
        uri = properties.get("uri") if isinstance(properties, dict) else None
        if not isinstance(properties, dict) or not isinstance(uri, str) or kind_of(uri.strip()) != "sql":
            return value
        hidden = hidden_in(str(uri), "catalog.properties.uri", uri.where if isinstance(uri, LocatedText) else None)
        return {**value, "properties": {**properties, "uri": hidden}} if hidden else value

    def _problems(self) -> Problems:
        return ((("properties", key), text) for key, text in self._property_problems())

    def _property_problems(self) -> Iterator[tuple[str, str]]:
        properties, kind = self.properties, self.properties.get("type")
        if isinstance(kind, str) and kind.lower() not in CATALOG_TYPES:
            near = suggestion(kind, CATALOG_TYPES)
            hint = f"did you mean '{near}'? " if near else ""
            yield "type", f"is no type of catalog; {hint}known: {', '.join(CATALOG_TYPES)}"
            return
        if OWN_CLASS in properties:
            if kind is not None:
                yield "type", f"leave it out beside {OWN_CLASS}, or that one out"
            # A foreign class has its own properties.
            return
        if "fsspec" not in str(properties.get("py-io-impl", "")):
            for key in _UNREAD:
                if key in properties:
                    yield key, "is not read by the client that writes data files; have the bucket encrypt what comes"
        if STORE_AUTHORITIES in properties and "py-io-impl" in properties:
            yield STORE_AUTHORITIES, "is read by frazil's own FileIO; leave out py-io-impl"
        mode = properties.get("snapshot-loading-mode", "all")
        if mode != "all":
            yield "snapshot-loading-mode", "must be all, or be left out: a stream's stamps are in all snapshots"
        uri = str(properties.get("uri", ""))
        scheme, expected = urlsplit(uri).scheme.partition("+")[0], _SCHEMES.get(self.kind, ())
        if uri and not uri.startswith("${") and expected and scheme not in expected:
            yield "uri", f"must begin with {' or '.join(f'{each}://' for each in expected)} for the type {self.kind}"
        for key, value in properties.items():
            near = nearest_property(key)
            if near is not None and (problem := literal_secret_problem(near, value)):
                yield key, f"is no property of a catalog that frazil knows; did you mean '{near}'? If so, {problem}"
        if "password" in properties:
            user = uri.partition("://")[2].rpartition("@")[0]
            if self.kind != "sql":
                yield "password", "is for a catalog of the type sql"
            elif not user or ":" in user.replace("${env:", "").replace("${file:", ""):
                yield "password", "is that of the user in uri, such as postgresql+psycopg://user@host/database"

    @property
    def doubts(self) -> Iterator[str]:
        """Yield a sentence for each property that seems to be misspelt: clients ignore unknown properties."""
        # A foreign class has its own properties.
        for key in self.properties if OWN_CLASS not in self.properties else ():
            if near := nearest_property(key):
                yield f"catalog.properties.{key} is no property of a catalog that frazil knows; did you mean '{near}'?"

    @property
    def kind(self) -> str:
        """The type in lower case, by default from the URI; empty if unknown."""
        given = self.properties.get("type")
        return str(given).lower() if given is not None else kind_of(str(self.properties.get("uri", "")))

    @property
    def secrets(self) -> Iterator[Secret]:
        """Yield the properties that are references."""
        return (value for value in self.properties.values() if isinstance(value, Secret))

    def revealed(self) -> dict[str, str]:
        """Returns the properties with the secrets' present values, the password within the URI; see `secrets.revealed`.

        Raises:
            FrazilError: If a secret's environment variable is not set.
        """
        found = revealed(self.properties)
        if self.kind == "sql" and (password := found.pop("password", None)) is not None:
            scheme, slashes, rest = found["uri"].partition("://")
            user, at, place = rest.rpartition("@")
            found["uri"] = f"{scheme}{slashes}{user}:{quote(password, safe='')}{at}{place}"
        return found


# Only PyIceberg's other client reads these; with this one, files would be written without the requested encryption.
_UNREAD = ("s3.server-side-encryption", "s3.sse-kms-key-id")
_SCHEMES: dict[str, tuple[str, ...]] = {"rest": _HTTP, "hive": ("thrift",)}


def kind_of(uri: str) -> str:
    """Return the type that PyIceberg infers from a catalog's URI; empty if unknown."""
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme in _HTTP:
        return "rest"
    return "hive" if scheme == "thrift" else "sql" if scheme in DATABASES else ""
