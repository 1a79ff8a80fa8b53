"""Secrets as references to variables or mounted files, which are read only where they are used; and properties.

Earlier releases allowed some secrets in URLs of the settings. Such a secret becomes a reference to a variable, whose
value this process has from the file. So no form of the settings contains it, and other processes get the variable.
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

# A key names a secret if one of these words, or of the last words below, is in it: `s3.session-token`,
# `adls.account-key`.
_SECRET_WORDS = {"authorization", "credential", "credentials", "passphrase", "passwd", "password", "secret", "token"}
_SECRET_ENDINGS = (("account", "key"), ("api", "key"), ("access", "key"), ("private", "key"), ("connection", "string"))
# Last words of keys that are only about a secret: `token-refresh-enabled`, `oauthTokenFile`.
_HARMLESS_LAST_WORDS = {"at", "enabled", "file", "id", "in", "ms", "path", "seconds", "ttl", "type", "uri", "url"}
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
# `scheme://user:password@host`. SQLAlchemy also accepts a slash in the password of a database URI.
_USERINFO = re.compile(r"://[^:/@?#\s]*:(?P<secret>[^@/?#\s]+)@")
_USERINFO_DATABASE = re.compile(r"^(?!https?:)[a-z0-9]+(\+[a-z0-9]+)?://[^:/@]*:(?P<secret>[^@]+)@")
_QUERY = re.compile(r"[?&;](?P<key>[^=?&;\s]+)=(?P<secret>[^&;\s]+)")


@dataclass(frozen=True, slots=True)
class Secret:
    """A text with one or more ``${env:NAME}`` or ``${file:/PATH}``, kept as written, without the values.

    Args:
        template: The text, such as ``${env:PGPASS}`` or ``postgresql://me:${file:/run/secrets/pg}@db/lake``.
        where: File and line of the text, for the message about a variable that is not set.

    Raises:
        ValueError: The text has no reference, or a malformed one. The message never quotes the text.
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
            raise ValueError(f"a secret must not be in the file; {_ADVICE}")

    @property
    def names(self) -> tuple[str, ...]:
        """The environment variables in its references, in order, each once."""
        return tuple(dict.fromkeys(name for name, _ in REFERENCE.findall(self.template) if name))

    @property
    def files(self) -> tuple[str, ...]:
        """The files in its references, in order, each once."""
        return tuple(dict.fromkeys(path for _, path in REFERENCE.findall(self.template) if path))

    def reveal(self) -> str:
        """Returns the text with the present values. Call it where the value is used, and do not keep the result.

        Raises:
            FrazilError: A variable is not set or is empty, or a file cannot be read or does not contain one line.
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
            raise ValueError(f"a secret must not be in the file; {_ADVICE}")
        return cls(str(value), value.where if isinstance(value, LocatedText) else None)


def reveal(value: str | Secret) -> str:
    """Returns a plain text unchanged, or a secret's present value."""
    return value.reveal() if isinstance(value, Secret) else value


def text_or_secret(value: object) -> str | Secret:
    """Converts a text with a ``${…}`` to a ``Secret``, and any other scalar (``true``, ``4``) to text.

    Raises:
        ValueError: If it is no scalar, or a reference is malformed.
    """
    if isinstance(value, Secret):
        return value
    if isinstance(value, str):
        return Secret._validate(value) if "${" in value else str(value)
    return scalar_text(value)


def scalar_text(value: object) -> str:
    """Returns a YAML scalar as text in the form of Iceberg's and Spark's properties: ``true``, not ``True``.

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
    """Whether a property of this name holds a secret, such as ``s3.secret-access-key`` or ``token``."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or words[-1] in _HARMLESS_LAST_WORDS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or tuple(words[-2:]) in _SECRET_ENDINGS


def literal_secret_problem(key: str, value: str | Secret) -> str | None:
    """Checks a property for a secret in plain text: by its name, or by a password inside a URI.

    Returns:
        A sentence that does not quote the value, or None if the property has no such secret.
    """
    text = str(value)
    if isinstance(value, str) and value and looks_secret(key):
        return f"a secret must not be in the file; {_ADVICE}"
    patterns = (_USERINFO, _USERINFO_DATABASE) if key.rpartition(".")[2] in ("uri", "url") else (_USERINFO,)
    # References are removed first, because they contain colons and braces; NUL marks their places.
    bare = REFERENCE.sub("\0", text)
    for pattern in patterns:
        if (match := pattern.search(bare)) and match["secret"].strip("\0"):
            return "a password must not be in the file; write ${env:NAME} in its place: ://user:${env:NAME}@host"
    for match in _QUERY.finditer(bare):
        if looks_secret(match["key"]) and match["secret"].strip("\0"):
            return f"a secret must not be in the file; write {match['key']}=${{env:NAME}}"
    return None


def _properties(value: object) -> Any:
    """Checks properties one by one; numbers and booleans become text, texts with a reference become secrets."""
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
    """Returns properties with the secrets' present values, for a client only; do not keep the result.

    Raises:
        FrazilError: If a secret's environment variable is not set.
    """
    return {key: reveal(value) for key, value in properties.items()}


class PresentValues(Mapping[str, str]):
    """Properties whose secrets are read at each access, for clients that live longer than a secret.

    Args:
        properties: Properties of a file. No form of this object contains the secrets' values.
    """

    def __init__(self, properties: Mapping[str, str | Secret]) -> None:
        self._properties: Mapping[str, str | Secret] = properties

    def __getitem__(self, key: str) -> str:
        """Return the present value.

        Raises:
            FrazilError: A variable is not set, or a file cannot be read.
        """
        return reveal(self._properties[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)

    def __len__(self) -> int:
        return len(self._properties)

    def __repr__(self) -> str:
        return f"PresentValues({ {key: str(value) for key, value in self._properties.items()} })"


def secrets_in(value: object) -> Iterator[Secret]:
    """Yields every secret in a model and its parts; a secret may come twice."""
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
    """Check that a text is the URL of a service and contains no secret.

    Args:
        value: The text in the file.
        schemes: Known schemes.
        examples: Examples for the message: `such as …`.
        others: Addition to the message about other schemes.

    Returns:
        The URL without surrounding blanks and without a slash at its end; and its parts.

    Raises:
        ValueError: The text is no such URL, or contains a secret. The message quotes only a parameter's name.
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
            "has a password in it, and a password must not be in the file; write password: ${env:NAME} under properties"
        )
    for key in secret_parameters(url):
        if key in POSTGRES_SECRETS:
            raise ValueError(
                f"has {key} in it, and a secret must not be in the file; write {key}: ${{env:NAME}} under properties"
            )
    if secret_parameters(url) or literal_secret_problem("url", url):
        raise ValueError("has a password or another secret in it, which must not be in the file")
    return url, parts


POSTGRES_SECRETS = ("password", "sslpassword", "scram_client_key", "scram_server_key")
"""Secret parameters of libpq among those that are allowed under properties."""

_SECRET = re.compile("passw|secret", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])(?P<key>[^=?&]+)=(?P<value>[^&]+)")


@dataclass(frozen=True, slots=True, repr=False)
class WrittenSecret(Secret):
    """A reference whose values are in the file, so that this process need not have its variables.

    Args:
        variables: Variables whose values are in the file, with the values.
        place: Place, in the settings, of the URL that contains the values.
        url: The URL.
        keys: Keys of the values in the URL.
    """

    variables: tuple[tuple[str, str], ...] = ()
    place: str = ""
    url: str = ""
    keys: tuple[str, ...] = ()

    def reveal(self) -> str:
        """Returns the text with the values; see `Secret.reveal`."""
        # Its other references first, because a value may look like a reference.
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
        """Pickle only the reference, as for any other secret."""
        return Secret, (self.template, self.where)


def holds_secret(parameter: str) -> bool:
    """Whether a parameter of a URL holds a secret, by its name, even if words are written together."""
    return looks_secret(parameter) or parameter in POSTGRES_SECRETS or bool(_SECRET.search(parameter))


def secret_parameters(url: str) -> list[str]:
    """Return the names of the parameters of a URL that hold a secret; repeated ones are repeated."""
    return [key for each in _PARAMETER.finditer(url) if holds_secret(key := unquote(each["key"]))]


def hidden_in(url: str, place: str, where: str | None) -> WrittenSecret | None:
    """Replace the secrets in a URL that earlier releases allowed by references; None if it contains none.

    Args:
        url: URL in the file, possibly with references of its own.
        place: Place in the settings, such as `catalog.properties.uri`.
        where: File and line, for the message about a variable in a reference.
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
    """Return a PostgreSQL URL without the secrets that earlier releases allowed in it, and these secrets by name.

    Args:
        url, place: See `hidden_in`; references stay in the URL.
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
    """Return problems for secret properties of PostgreSQL that are in the file as plain text, by their place."""
    advice = "a secret must not be in the file; write ${env:NAME} here and set the environment variable NAME"
    return [
        (("properties", key), advice)
        for key in POSTGRES_SECRETS
        if isinstance(value := properties.get(key), str) and value
    ]


def written_variables(secrets: Iterable[Secret]) -> dict[str, str]:
    """Return the variables that another process needs, beside a dump of the settings, to have the file's values."""
    return {name: value for each in secrets if isinstance(each, WrittenSecret) for name, value in each.variables}


def _variable(place: str, number: int) -> str:
    return f"FRAZIL_{place.upper().replace('.', '_')}_{number}"


def _let_stand(key: str) -> bool:
    return holds_secret(key) and not looks_secret(key)
