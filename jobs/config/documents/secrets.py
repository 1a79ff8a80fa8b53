"""Secrets as references to variables or mounted files, read only where they are used, and properties with them.

A secret that stands in a URL of the settings, as earlier releases let some of them, is kept as a reference to a
variable of its own name, whose value this process has from the file. So no form of the settings holds it, and another
process is given the variable beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import core_schema

from jobs.base.errors import FrazilError
from jobs.base.system.carried import variable
from jobs.base.system.mounted import mounted_text
from jobs.config.documents.base import Problem, problems_at
from jobs.config.documents.yaml_document import LocatedText

REFERENCE = re.compile(r"\$\{(?:env:([A-Za-z_][A-Za-z0-9_]*)|file:(/[^${}\x00-\x1f]+))\}")
_ADVICE = "write ${env:NAME} here and set the environment variable NAME"

# A key holds a secret if one of its words, or its last words, say so: `s3.session-token`, `adls.account-key`.
_SECRET_WORDS = {"authorization", "credential", "credentials", "passphrase", "passwd", "password", "secret", "token"}
_SECRET_ENDINGS = (("account", "key"), ("api", "key"), ("access", "key"), ("private", "key"), ("connection", "string"))
# …unless its last word says that it is about a secret: `token-refresh-enabled`, `oauthTokenFile`.
_HARMLESS_LAST_WORDS = {"at", "enabled", "file", "id", "in", "ms", "path", "seconds", "ttl", "type", "uri", "url"}
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
# `scheme://user:password@host`. In a database URI SQLAlchemy lets a slash stand in the password, too.
_USERINFO = re.compile(r"://[^:/@?#\s]*:(?P<secret>[^@/?#\s]+)@")
_USERINFO_DATABASE = re.compile(r"^(?!https?:)[a-z0-9]+(\+[a-z0-9]+)?://[^:/@]*:(?P<secret>[^@]+)@")
_QUERY = re.compile(r"[?&;](?P<key>[^=?&;\s]+)=(?P<secret>[^&;\s]+)")


@dataclass(frozen=True, slots=True)
class Secret:
    """A text with one or more ``${env:NAME}`` or ``${file:/PATH}`` in it, kept as it is written, without the values.

    Args:
        template: The text, such as ``${env:PGPASS}`` or ``postgresql://me:${file:/run/secrets/pg}@db/lake``.
        where: File and line it was written in, for the message about a variable that is not set.

    Raises:
        ValueError: If the text has no reference, or a malformed one. The message never repeats the text.
    """

    template: str
    where: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        rest = REFERENCE.sub("", self.template)
        if "${" in rest:
            raise ValueError(
                "has a reference that cannot be read; write ${env:NAME}, with letters, digits and _, or ${file:/PATH}, "
                "with the whole path"
            )
        if rest == self.template:
            raise ValueError(f"a secret must not stand in the file; {_ADVICE}")

    @property
    def names(self) -> tuple[str, ...]:
        """The environment variables it refers to, in order, each once."""
        return tuple(dict.fromkeys(name for name, _ in REFERENCE.findall(self.template) if name))

    @property
    def files(self) -> tuple[str, ...]:
        """The files it refers to, in order, each once."""
        return tuple(dict.fromkeys(path for _, path in REFERENCE.findall(self.template) if path))

    def reveal(self) -> str:
        """Returns the text with what variables and files hold now. Call it where it is used, and do not keep it.

        Raises:
            FrazilError: If a variable is not set or is empty, or a file cannot be read or does not hold one line.
        """

        def value(match: re.Match[str]) -> str:
            place = f", which {self.where} refers to," if self.where else ""
            if match[2]:
                try:
                    return mounted_text(match[2])
                except (OSError, ValueError) as problem:
                    said = f"cannot be read: {problem.strerror}" if isinstance(problem, OSError) else str(problem)
                raise FrazilError(
                    f"The file {match[2]}{place} {said}.",
                    fix=f"mount the secret there, as one line that this user may read; then ls -l {match[2]}",
                )
            found = variable(match[1])
            if found:
                return found
            state = "not set" if found is None else "empty"
            raise FrazilError(
                f"The environment variable {match[1]}{place} is {state}.",
                fix=f"read -rs {match[1]} && export {match[1]}",
            )

        return REFERENCE.sub(value, self.template)

    def __str__(self) -> str:
        return self.template

    def __repr__(self) -> str:
        return f"Secret({self.template!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema()),
        )

    @classmethod
    def _validate(cls, value: object) -> Secret:
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str):
            raise ValueError(f"a secret must not stand in the file; {_ADVICE}")
        return cls(str(value), value.where if isinstance(value, LocatedText) else None)


def reveal(value: str | Secret) -> str:
    """Returns a plain text as it is, and a secret's present value."""
    return value.reveal() if isinstance(value, Secret) else value


def text_or_secret(value: object) -> str | Secret:
    """Makes a ``Secret`` of a text with a ``${…}`` in it, and text of any other scalar (``true``, ``4``).

    Raises:
        ValueError: If it is no scalar, or a reference is malformed.
    """
    if isinstance(value, Secret):
        return value
    if isinstance(value, str):
        return Secret._validate(value) if "${" in value else str(value)
    return scalar_text(value)


def scalar_text(value: object) -> str:
    """Returns the text of a YAML scalar as the properties of Iceberg and Spark want it: ``true``, not ``True``.

    Raises:
        ValueError: If it is a list, a mapping or nothing.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise ValueError("must be a single value (text, a number, true or false)")


def looks_secret(key: str) -> bool:
    """Says whether a property of this name holds a secret, such as ``s3.secret-access-key`` or ``token``."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or words[-1] in _HARMLESS_LAST_WORDS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or tuple(words[-2:]) in _SECRET_ENDINGS


def literal_secret_problem(key: str, value: str | Secret) -> str | None:
    """Says what is wrong if a property shows a secret in its own text: by its name, or by a password inside a URI.

    Returns:
        A sentence that does not repeat the value, or None if the property is in order.
    """
    text = str(value)
    if isinstance(value, str) and value and looks_secret(key):
        return f"a secret must not stand in the file; {_ADVICE}"
    patterns = (_USERINFO, _USERINFO_DATABASE) if key.rpartition(".")[2] in ("uri", "url") else (_USERINFO,)
    # References are taken out first, for they have colons and braces of their own; NUL keeps their place.
    bare = REFERENCE.sub("\0", text)
    for pattern in patterns:
        if (match := pattern.search(bare)) and match["secret"].strip("\0"):
            return "a password must not stand in the file; write ${env:NAME} in its place: ://user:${env:NAME}@host"
    for match in _QUERY.finditer(bare):
        if looks_secret(match["key"]) and match["secret"].strip("\0"):
            return f"a secret must not stand in the file; write {match['key']}=${{env:NAME}}"
    return None


def _properties(value: object) -> Any:
    """Checks properties one by one; numbers and truth values become text, texts with a reference become secrets."""
    if not isinstance(value, dict):
        return value
    checked: dict[str, str | Secret] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        try:
            if not isinstance(key, str):
                raise ValueError("a property's name must be text; put it in quotes")
            checked[key] = text_or_secret(item)
        except ValueError as error:
            problems.append(((key if isinstance(key, int) else str(key),), str(error)))
            continue
        if problem := literal_secret_problem(key, checked[key]):
            problems.append(((key,), problem))
    if problems:
        raise problems_at([((str(at[0]),), text) for at, text in problems])
    return checked


Properties = Annotated[
    dict[str, str | Secret],
    BeforeValidator(_properties),
    PlainSerializer(lambda p: {key: str(value) for key, value in p.items()}, return_type=dict[str, str]),
]


def revealed(properties: dict[str, str | Secret]) -> dict[str, str]:
    """Returns properties with the secrets' present values: for a client only, never to be kept.

    Raises:
        FrazilError: If a secret's environment variable is not set.
    """
    return {key: reveal(value) for key, value in properties.items()}


class PresentValues(Mapping[str, str]):
    """Properties whose secrets are read whenever they are asked for, for clients that live longer than a secret.

    Args:
        properties: As a file has them. The values are in no form of it.
    """

    def __init__(self, properties: Mapping[str, str | Secret]) -> None:
        self._properties: Mapping[str, str | Secret] = properties

    def __getitem__(self, key: str) -> str:
        """The present value.

        Raises:
            FrazilError: It cannot be had.
        """
        return reveal(self._properties[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)

    def __len__(self) -> int:
        return len(self._properties)

    def __repr__(self) -> str:
        return f"PresentValues({ {key: str(value) for key, value in self._properties.items()} })"


def secrets_in(value: object) -> Iterator[Secret]:
    """Yields every secret that a model, or anything that its fields are made of, refers to; one may come twice."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from secrets_in(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from secrets_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from secrets_in(getattr(value, each.name))


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
