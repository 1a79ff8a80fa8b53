"""Models of services that a URL names: the state store, and the source databases of mirrors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from jobs.config.documents.base import (
    LocalPath,
    Problems,
    SpecModel,
    local_path,
    problems_at,
)
from jobs.config.documents.secrets import (
    POSTGRES_SECRETS,
    Properties,
    Secret,
    bare_secrets,
    revealed,
    service_url,
    without_written,
)
from jobs.config.documents.units import Duration
from jobs.config.documents.validation import suggestion
from jobs.config.services.catalog_properties import STORE_AUTHORITIES

# PyIceberg's names of properties, and botocore's names for them.
S3_PROPERTIES = {
    "s3.endpoint": "endpoint_url",
    "s3.region": "region_name",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.force-virtual-addressing": "",
    STORE_AUTHORITIES: "verify",
}
# libpq's names of properties, and the table.
POSTGRES_PROPERTIES = (*POSTGRES_SECRETS, "sslmode", "sslrootcert", "sslcert", "sslkey", "table")
DEFAULT_TABLE = "frazil_state"

_EXAMPLES = "such as s3://bucket/frazil or postgresql://user@host:5432/database"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")


def _store_url(value: str) -> str:
    url, parts = service_url(value, ("s3", "postgresql"), _EXAMPLES)
    if parts.scheme == "postgresql":
        if not parts.hostname or not parts.path.strip("/") or "/" in parts.path.strip("/"):
            raise ValueError("must name a host and a database, such as postgresql://user@host:5432/database")
        return url
    path = parts.path.strip("/")
    if "@" in parts.netloc or parts.query or parts.fragment or not _BUCKET.fullmatch(parts.netloc):
        raise ValueError("must be a bucket and a folder in it, such as s3://bucket/frazil")
    if path and not _PREFIX.fullmatch(path):
        raise ValueError("must end with a folder of letters, digits, _, -, = and ., such as s3://bucket/frazil")
    return url


class StateSettings(SpecModel):
    """Where the state is.

    Args:
        folder: Folder of this machine: logs, locks, Spark's scratch, and without a store the documents of the
            deployment.
        store: URL of the store of documents that all machines share, ``s3://…`` or ``postgresql://…``.
        properties: Properties of the store, such as ``s3.endpoint``, ``password`` or ``table``. Secrets are references.
        timeout: Timeout of a request to the store, from ``500ms`` to ``30s``.
    """

    example = "{store: 's3://bucket/frazil'}"

    folder: LocalPath | None = None
    store: Annotated[str, AfterValidator(_store_url)] | None = None
    properties: Properties = Field(default_factory=dict)
    timeout: Duration = timedelta(seconds=5)

    @model_validator(mode="before")
    @classmethod
    def _hidden(cls, value: Any) -> Any:
        """Move secrets that earlier releases allowed in the URL of a database to the properties, as references."""
        url, properties = (value.get("store"), value.get("properties") or {}) if isinstance(value, dict) else (None, {})
        if not isinstance(url, str) or not url.strip().startswith("postgresql:") or not isinstance(properties, dict):
            return value
        bare, taken = without_written(url.strip().rstrip("/"), "state.store")
        if twice := sorted(taken.keys() & properties.keys()):
            raise problems_at([(("store",), f"has {', '.join(twice)} in it, and so has properties; take it out here")])
        return {**value, "store": bare, "properties": {**properties, **taken}} if taken else value

    def _problems(self) -> Problems:
        yield from bare_secrets(self.properties)
        known = tuple(S3_PROPERTIES) if self.kind == "s3" else POSTGRES_PROPERTIES if self.kind else ()
        for key in self.properties:
            if self.store is None:
                yield ("properties", key), f"is for a store; write store: {_EXAMPLES}"
            elif key not in known:
                near = suggestion(key, known)
                hint = f"did you mean '{near}'? " if near else ""
                yield ("properties", key), f"is not known; {hint}known: {', '.join(known)}"
        table = self.properties.get("table", DEFAULT_TABLE)
        if self.kind == "postgresql" and not (isinstance(table, str) and _TABLE.fullmatch(table)):
            yield ("properties", "table"), "must be a name in lower case, with or without a schema, such as ops.frazil"
        pair = ("s3.access-key-id", "s3.secret-access-key")
        if self.kind == "s3" and sum(key in self.properties for key in pair) == 1:
            yield ("properties",), f"{' and '.join(pair)} belong together"
        if not timedelta(seconds=0.5) <= self.timeout <= timedelta(seconds=30):
            yield ("timeout",), "must be between 500ms and 30s"

    @property
    def kind(self) -> Literal["s3", "postgresql"] | None:
        """Kind of the store; None without one."""
        if self.store is None:
            return None
        return "s3" if self.store.startswith("s3:") else "postgresql"

    @property
    def secrets(self) -> Iterator[Secret]:
        """Those of its properties that are references."""
        return (value for value in self.properties.values() if isinstance(value, Secret))

    def revealed(self) -> dict[str, str]:
        """The properties with the secrets' present values; see `secrets.revealed`."""
        return revealed(self.properties)


def state_settings(value: Any, info: ValidationInfo) -> Any:
    """Normalize the value of `state`: a plain path is the folder."""
    if value is None or isinstance(value, (dict, StateSettings)):
        return value
    return {"folder": local_path(value, info)}


State = Annotated[StateSettings | None, BeforeValidator(state_settings)]


# libpq's names of properties.
SOURCE_PROPERTIES = (*POSTGRES_SECRETS, "sslmode", "sslrootcert", "sslcert", "sslkey")
_SOURCE_EXAMPLE = "such as postgresql://user@host:5432/database"


def _source_url(value: str) -> str:
    others = "; mirrors of other databases are not compared"
    url, parts = service_url(value, ("postgresql",), _SOURCE_EXAMPLE, others=others)
    if not parts.hostname or not parts.username or not parts.path.strip("/") or "/" in parts.path.strip("/"):
        raise ValueError(f"must name a user, a host and a database, {_SOURCE_EXAMPLE}")
    return url


class SourceSettings(SpecModel):
    """A database that a stream's changes come from. It is only read, when a mirror is compared with it.

    Args:
        url: URL of the database without a password.
        properties: Connection properties, such as ``password`` and ``sslmode``. Secrets are references.
        timeout: Timeout of a connection and of a lock on the table.
        statement_timeout: Timeout of one statement.
    """

    example = "{url: 'postgresql://reader@db:5432/shop'}"

    url: Annotated[str, AfterValidator(_source_url)]
    properties: Properties = Field(default_factory=dict)
    timeout: Duration = timedelta(seconds=10)
    statement_timeout: Duration = timedelta(minutes=10)

    def _problems(self) -> Problems:
        yield from bare_secrets(self.properties)
        for key in self.properties:
            if key not in SOURCE_PROPERTIES:
                near = suggestion(key, SOURCE_PROPERTIES)
                hint = f"did you mean '{near}'? " if near else ""
                said = f"is not known; {hint}known: {', '.join(SOURCE_PROPERTIES)}"
                yield ("properties", key), said
        if not timedelta(seconds=1) <= self.timeout <= timedelta(minutes=5):
            yield ("timeout",), "must be between 1s and 5m"
        if not timedelta(seconds=1) <= self.statement_timeout <= timedelta(days=1):
            yield ("statement_timeout",), "must be between 1s and 1d"

    @property
    def secrets(self) -> Iterator[Secret]:
        """Those of its properties that are references."""
        return (value for value in self.properties.values() if isinstance(value, Secret))

    def revealed(self) -> dict[str, str]:
        """The properties with the secrets' present values; see `secrets.revealed`."""
        return revealed(self.properties)


def _source_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", value):
        raise ValueError("must be a name of small letters, digits, _ and -, such as shop")
    return value


SourceName = Annotated[str, AfterValidator(_source_name)]
