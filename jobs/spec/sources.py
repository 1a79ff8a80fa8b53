"""Sources block of the settings: the databases that streams of changes come from, with which mirrors are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from jobs.spec.base import Location, SpecModel, problems_at
from jobs.spec.secrets import Properties, Secret, revealed
from jobs.spec.service_url import service_url
from jobs.spec.units import Duration
from jobs.spec.validation import suggestion
from jobs.spec.written_secret import POSTGRES_SECRETS, bare_secrets

# As libpq names them.
SOURCE_PROPERTIES = (*POSTGRES_SECRETS, "sslmode", "sslrootcert", "sslcert", "sslkey")
_EXAMPLE = "such as postgresql://user@host:5432/database"


def _url(value: str) -> str:
    others = "; mirrors of other databases are not compared"
    url, parts = service_url(value, ("postgresql",), _EXAMPLE, others=others)
    if not parts.hostname or not parts.username or not parts.path.strip("/") or "/" in parts.path.strip("/"):
        raise ValueError(f"must name a user, a host and a database, {_EXAMPLE}")
    return url


class SourceSettings(SpecModel):
    """A database that a stream's changes come from. It is only read, when a mirror is compared with it.

    Args:
        url: Where it is, without a password.
        properties: How to get there: `password`, `sslpassword`, and `sslmode` and the like as libpq names them.
        timeout: How long a connection is waited for, and a lock on the table.
        statement_timeout: How long one statement may take.
    """

    url: Annotated[str, AfterValidator(_url)]
    properties: Properties = Field(default_factory=dict)
    timeout: Duration = timedelta(seconds=10)
    statement_timeout: Duration = timedelta(minutes=10)

    @model_validator(mode="after")
    def _known(self) -> SourceSettings:
        problems: list[tuple[Location, str]] = bare_secrets(self.properties)
        for key in self.properties:
            if key not in SOURCE_PROPERTIES:
                near = suggestion(key, SOURCE_PROPERTIES)
                hint = f"did you mean '{near}'? " if near else ""
                said = f"is not known; {hint}known: {', '.join(SOURCE_PROPERTIES)}"
                problems.append((("properties", key), said))
        if not timedelta(seconds=1) <= self.timeout <= timedelta(minutes=5):
            problems.append((("timeout",), "must be between 1s and 5m"))
        if not timedelta(seconds=1) <= self.statement_timeout <= timedelta(days=1):
            problems.append((("statement_timeout",), "must be between 1s and 1d"))
        if problems:
            raise problems_at(problems)
        return self

    @property
    def secrets(self) -> Iterator[Secret]:
        """Those of its properties that are references."""
        return (value for value in self.properties.values() if isinstance(value, Secret))

    def revealed(self) -> dict[str, str]:
        """The properties with the secrets' present values; see `secrets.revealed`."""
        return revealed(self.properties)


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", value):
        raise ValueError("must be a name of small letters, digits, _ and -, such as shop")
    return value


SourceName = Annotated[str, AfterValidator(_name)]
