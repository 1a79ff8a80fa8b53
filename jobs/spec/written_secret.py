"""Secrets that stand in a URL of the settings, as earlier releases let some of them: used as ever, and shown nowhere.

Such a parameter is kept as a reference to a variable of its own name, whose value this process has from the file. So
no form of the settings holds it, and whoever is given them by another process is given the variable beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from jobs.spec.base import Problem
from jobs.spec.secrets import Secret, literal_secret_problem, looks_secret


def service_url(value: str, schemes: tuple[str, ...], examples: str, *, others: str = "") -> tuple[str, SplitResult]:
    """Check that a text is the URL of a service, and holds no secret.

    Args:
        value: As the file has it.
        schemes: Those that are known.
        examples: For the message: `such as …`.
        others: What is said of other schemes besides.

    Returns:
        The URL without space around it and without a slash at its end; and its parts.

    Raises:
        ValueError: It is none, or holds a secret. The message repeats nothing of it but a parameter's name.
    """
    url = value.strip().rstrip("/")
    if "${" in url:
        raise ValueError("is not a secret; write the password as ${env:NAME} under properties")
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"must be a URL {examples}") from None
    if parts.scheme not in schemes:
        known = " or ".join(f"{each}://" for each in schemes)
        raise ValueError(f"must begin with {known}, {examples}{others}")
    if parts.password is not None:
        raise ValueError(
            "has a password in it, and a password must not stand in the file; write password: ${env:NAME} under "
            "properties"
        )
    for key in secret_parameters(url):
        if key in POSTGRES_SECRETS:
            raise ValueError(
                f"has {key} in it, and a secret must not stand in the file; write {key}: ${{env:NAME}} under properties"
            )
    if secret_parameters(url) or literal_secret_problem("url", url):
        raise ValueError("has a password or another secret in it, which must not stand in the file")
    return url, parts


POSTGRES_SECRETS = ("password", "sslpassword", "scram_client_key", "scram_server_key")
"""The parameters of libpq that are secrets, of those that may stand under properties."""

_SECRET = re.compile("passw|secret", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])(?P<key>[^=?&]+)=(?P<value>[^&]+)")


@dataclass(frozen=True, slots=True, repr=False)
class WrittenSecret(Secret):
    """A reference whose variables this process need not have, for their values stand in the file.

    Args:
        variables: Those of its variables that stand in the file, each with its value.
        place: Of the URL that they were written in, in the settings.
        url: That URL, as a whole.
        keys: What they are called there.
    """

    variables: tuple[tuple[str, str], ...] = ()
    place: str = ""
    url: str = ""
    keys: tuple[str, ...] = ()

    def reveal(self) -> str:
        """Returns the text with the values; see `Secret.reveal`."""
        # What else it refers to first: a value may look like a reference.
        marked = self.template
        for number, (name, _) in enumerate(self.variables):
            marked = marked.replace(f"${{env:{name}}}", f"\0{number}\0")
        found = Secret(marked, self.where).reveal() if "${" in marked else marked
        for number, (_, value) in enumerate(self.variables):
            found = found.replace(f"\0{number}\0", value)
        return found

    def __copy__(self) -> WrittenSecret:
        return self

    def __deepcopy__(self, memo: object) -> WrittenSecret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled it is the reference alone, as any other secret is."""
        return Secret, (self.template, self.where)


def holds_secret(parameter: str) -> bool:
    """Whether a parameter of a URL holds a secret, by its name: also in words that are written together."""
    return looks_secret(parameter) or parameter in POSTGRES_SECRETS or bool(_SECRET.search(parameter))


def secret_parameters(url: str) -> list[str]:
    """The names of the parameters of a URL that hold a secret, each as often as it is there."""
    return [key for each in _PARAMETER.finditer(url) if holds_secret(key := unquote(each["key"]))]


def hidden_in(url: str, place: str, where: str | None) -> WrittenSecret | None:
    """A URL whose written secrets are references; None if none is written there that earlier releases let stand.

    Args:
        url: As the file has it, perhaps with references of its own.
        place: In the settings, such as `catalog.properties.uri`.
        where: File and line, for the message about a variable that it refers to.
    """
    variables: list[tuple[str, str]] = []
    keys: list[str] = []

    def reference(found: re.Match[str]) -> str:
        key = unquote(found["key"])
        if "${" in found["value"] or not _let_stand(key):
            return found[0]
        keys.append(key)
        variables.append((_variable(place, len(keys)), found["value"]))
        return f"{found['key']}=${{env:{variables[-1][0]}}}"

    template = _PARAMETER.sub(reference, url)
    return WrittenSecret(template, where, tuple(variables), place, url, tuple(keys)) if keys else None


def without_written(url: str, place: str) -> tuple[str, dict[str, WrittenSecret]]:
    """A PostgreSQL URL without the written secrets that earlier releases let stand there, and these by their names.

    Args:
        url, place: As of `hidden_in`; a reference stays where it is.
    """
    before, mark, query = url.partition("?")
    kept: list[str] = []
    taken: dict[str, WrittenSecret] = {}
    for part in query.split("&"):
        key, _, value = part.partition("=")
        key = unquote(key)
        if value and "${" not in value and key in POSTGRES_SECRETS and _let_stand(key):
            name = _variable(place, len(taken) + 1)
            taken[key] = WrittenSecret(f"${{env:{name}}}", None, ((name, unquote(value)),), place, url, (key,))
        else:
            kept.append(part)
    rest = "&".join(kept)
    return f"{before}{mark if rest else ''}{rest}" if taken else url, taken


def bare_secrets(properties: Mapping[str, str | Secret]) -> list[Problem]:
    """What is wrong with properties of PostgreSQL that are secrets and stand in the file, by their place."""
    advice = "a secret must not stand in the file; write ${env:NAME} here and set the environment variable NAME"
    return [
        (("properties", key), advice)
        for key in POSTGRES_SECRETS
        if isinstance(value := properties.get(key), str) and value
    ]


def written_variables(secrets: Iterable[Secret]) -> dict[str, str]:
    """The variables with which another process, given what these settings' dump says, has what the file says."""
    return {name: value for each in secrets if isinstance(each, WrittenSecret) for name, value in each.variables}


def _variable(place: str, number: int) -> str:
    return f"FRAZIL_{place.upper().replace('.', '_')}_{number}"


def _let_stand(key: str) -> bool:
    return holds_secret(key) and not looks_secret(key)
