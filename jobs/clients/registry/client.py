"""Client of a schema registry, around confluent-kafka's, with typed schemas and errors."""

from __future__ import annotations

import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jobs.base.errors import FrazilError
from jobs.base.system.carried import local_options
from jobs.clients.registry.connection import RegistryConnection, TokenRequest, registry_connection
from jobs.clients.registry.failures import (
    CHECK_ADDRESS,
    NotInRegistryError,
    RegistryError,
    RegistryPageError,
    RegistryRefusedError,
    RegistryUnavailableError,
    answered_problem,
    passes,
    request_problem,
    tls_problem,
)
from jobs.config.services.registry import LINES_TO_ADD, RegistrySettings
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient


# Remaining share of a token's lifetime at which the next one is requested.
_RENEWED_AT = 0.2
_PASSING_ERRORS = ("server_error", "temporarily_unavailable", "slow_down")
_FIX = "check `registry: {oauth: …}` in frazil.yaml, then `frazil validate`"


class TokenSource:
    """Custom provider of header fields for confluent-kafka's client, with tokens of an identity provider.

    confluent-kafka's own provider has no certificates and no time-out, and needs tokens that name their end.

    Args:
        request: Parameters of a token request.
        timeout: Time-out of a request, in seconds.
        options: Options of the registry's client; its certificates are used for tokens, too.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        request: TokenRequest,
        timeout: float,
        options: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request: TokenRequest = request
        self._timeout: float = timeout
        self._clock: Callable[[], float] = clock
        self._lock: threading.Lock = threading.Lock()
        self._token: str | None = None
        self._renew_at: float | None = None
        self._shown: str = f"The identity provider at {request.url}"
        try:
            self._verify: ssl.SSLContext | bool = _tls_context(options)
        except OSError as problem:
            raise tls_problem(problem, self._shown, options) from None

    def fields(self, _: dict[str, Any]) -> dict[str, str]:
        """Return the fields of a request, with a valid token.

        Raises:
            RegistryError: The identity provider gives no token.
        """
        found = {
            "bearer.auth.token": self._current(),
            "bearer.auth.logical.cluster": self._request.logical_cluster or "",
        }
        if self._request.identity_pool_id:
            found["bearer.auth.identity.pool.id"] = self._request.identity_pool_id
        return found

    def forget(self) -> bool:
        """Drop the token, so that the next request gets another one; return whether there was one."""
        with self._lock:
            had, self._token = self._token is not None, None
            return had

    def _current(self) -> str:
        with self._lock:
            if self._token is None or (self._renew_at is not None and self._clock() >= self._renew_at):
                self._token, self._renew_at = self._fetched()
            return self._token

    def _fetched(self) -> tuple[str, float | None]:
        from authlib.integrations.base_client import OAuthError

        asked = self._clock()
        try:
            token = self._ask()
        except RegistryError:
            raise
        except OAuthError as problem:
            kind = RegistryUnavailableError if problem.error in _PASSING_ERRORS else RegistryRefusedError
            raise kind(f"{self._shown} gives no token: {problem.error}", fix=_FIX) from None
        except Exception as problem:
            raise request_problem(problem, self._shown, self._timeout) from None
        if not token.get("access_token"):
            raise RegistryRefusedError(f"{self._shown} gives no token: its answer has none", fix=_FIX)
        seconds = token.get("expires_in")
        return str(token["access_token"]), None if seconds is None else asked + float(seconds) * (1 - _RENEWED_AT)

    def _ask(self) -> Mapping[str, Any]:
        from authlib.integrations.httpx_client import OAuth2Client

        # Its stubs lack that it is a context manager.
        made: Any = OAuth2Client(
            client_id=self._request.client_id,
            client_secret=self._request.client_secret,
            scope=self._request.scope,
            verify=self._verify,
            timeout=self._timeout,
        )
        with made as client:
            client.register_compliance_hook("access_token_response", self._unless_away)
            return client.fetch_token(url=self._request.url, grant_type="client_credentials")

    def _unless_away(self, response: Any) -> Any:
        if passes(response.status_code):
            raise RegistryUnavailableError(f"{self._shown} is not well: HTTP {response.status_code}", fix=_FIX)
        return response


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext | bool:
    ca, certificate = options.get("ssl.ca.location"), options.get("ssl.certificate.location")
    if ca is None and certificate is None:
        return True
    context = ssl.create_default_context(cafile=ca or None)
    if ca is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, options["ssl.key.location"], options["ssl.key.password"])
    return context


T = TypeVar("T")
REGISTRY_SECONDS = 4.0
"""How long a quick look waits for one answer of a registry, in seconds."""


class SubjectVersion(NamedTuple):
    """A version of a subject.

    Attributes:
        id: Id of its schema in the registry.
    """

    subject: str
    version: int
    id: int
    schema: RegistrySchema


class Reference(NamedTuple):
    """Reference of a schema: the name that the schema uses, and the subject's version that it stands for."""

    name: str
    subject: str
    version: int


class RegistryClient:
    """Client of one registry; every call may raise `RegistryError` (an OSError) if there is no usable answer.

    Args:
        connection: Address, login and options.

    Attributes:
        shown: Name of the registry in messages.

    Raises:
        RegistryRefusedError: The certificates cannot be used.
        FrazilError: The required packages are not installed.
    """

    def __init__(self, connection: RegistryConnection) -> None:
        self.shown: str = f"The schema registry at {connection.shown}"
        self._timeout: float = connection.timeout
        self._token: TokenSource | None = None
        options = local_options(connection.options)
        if connection.token is not None:
            self._token = TokenSource(connection.token, connection.timeout, dict(options))
            options["bearer.auth.credentials.source"] = "CUSTOM"
            options["bearer.auth.custom.provider.function"] = self._token.fields
            options["bearer.auth.custom.provider.config"] = {}
        self._client: SchemaRegistryClient = self._made(options)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def schema(self, schema_id: SchemaId) -> RegistrySchema:
        """Return the schema of an id, with all its references.

        Raises:
            NotInRegistryError: The registry does not know the id, or a reference.
        """
        if schema_id.guid is not None:
            guid = str(uuid.UUID(hex=schema_id.guid))
            return self._whole(self._known(lambda: self._client.get_schema_by_guid(guid)))
        number = schema_id.number or 0
        return self._whole(self._known(lambda: self._client.get_schema(number)))

    def used_by(self, schema_id: SchemaId) -> list[tuple[str, int]]:
        """Return the subjects and versions that have the schema of an id; empty if the registry cannot list them.

        Raises:
            NotInRegistryError: The registry does not know the id.
        """
        if schema_id.number is None:
            return []
        number = schema_id.number
        found = self._ask(lambda: self._client.get_schema_versions(number))
        return [(each.subject or "", each.version or 0) for each in found]

    def version(self, subject: str, version: int | None = None) -> SubjectVersion:
        """Return a version of a subject, by default the newest.

        Raises:
            NotInRegistryError: The subject or the version does not exist.
        """
        found = self._ask(lambda: self._client.get_version(subject, "latest" if version is None else version))
        schema = self._whole(found.schema)
        return SubjectVersion(found.subject or subject, found.version or 0, found.schema_id or 0, schema)

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, sorted.

        Raises:
            NotInRegistryError: The subject does not exist.
        """
        return sorted(self._ask(lambda: self._client.get_versions(subject)))

    def subjects(self, prefix: str = "") -> list[str]:
        """Return the subjects that begin with a prefix, sorted."""
        found = self._ask(lambda: self._client.get_subjects(subject_prefix=prefix or None))
        # Some registries ignore the prefix.
        return sorted(each for each in found if each.startswith(prefix))

    def register(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> int:
        """Register a schema as the newest version of a subject, unless the subject has it; return the schema's id.

        Args:
            subject: Subject, which is created if it does not exist.
            kind: `AVRO`, `PROTOBUF` or `JSON`.
            text: Text of the schema.
            references: References of the schema.

        Raises:
            RefusedSchemaError: The text is no schema, or it is incompatible with an earlier version.
        """
        schema = _confluent_schema(kind, text, references)
        return self._ask(lambda: self._client.register_schema(subject, schema))

    def check(self) -> None:
        """Raise unless the address is that of a schema registry that accepts the login."""
        found = self._ask(lambda: self._client.get_subjects(limit=1))
        if not isinstance(found, list):
            raise RegistryError(f"{self.shown} answers as no schema registry does.", fix="frazil validate")

    def _made(self, options: dict[str, Any]) -> SchemaRegistryClient:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as problem:
            raise FrazilError(
                f"Schemas of a registry need packages that are not installed ({problem.name}).",
                fix="pip install 'frazil[registry]'",
            ) from None
        try:
            return SchemaRegistryClient(options)
        except OSError as problem:
            raise tls_problem(problem, self.shown, options) from None

    def _whole(self, schema: Schema) -> RegistrySchema:
        """Return a schema with its references, each before its users; the first of two with one name counts."""
        found: dict[str, str] = {}
        entered: set[str] = set()

        def add(references: Iterable[Any]) -> None:
            for each in references:
                if each.name in entered:
                    continue
                entered.add(each.name)
                # A reference may point to a version that was deleted since.
                read = self._ask(lambda each=each: self._client.get_version(each.subject, each.version, deleted=True))
                add(read.schema.references or ())
                found[each.name] = self._text(read.schema)

        add(schema.references or ())
        return RegistrySchema(schema.schema_type or "AVRO", WriterSchema(self._text(schema), tuple(found.items())))

    def _text(self, schema: Schema) -> str:
        text = schema.schema_str
        if not isinstance(text, str):
            # The answer is other JSON; records must not fail for that.
            raise RegistryError(f"{self.shown} answers as no schema registry does: without a schema", fix=CHECK_ADDRESS)
        return text

    def _known(self, question: Callable[[], Schema]) -> Schema:
        """Return a schema that is looked up by its id.

        Some registries answer an impossible id, or a kind of id that they do not support, like a missing page. So does
        a wrong address; but there, other requests fail in the same way.
        """
        try:
            return self._ask(question)
        except RegistryPageError as page:
            try:
                self._ask(self._client.get_schema_types)
            except RegistryPageError:
                raise page from None
            raise NotInRegistryError(f"{self.shown} does not look up such an id.") from None

    def _ask(self, question: Callable[[], T]) -> T:
        # The client's caches are unbounded; `jobs.clients.registry.process_schemas` caches instead.
        self._client.clear_caches()
        try:
            return question()
        except Exception as problem:
            sorted_ = self._sorted(problem)
            if not (isinstance(sorted_, RegistryRefusedError) and self._token is not None and self._token.forget()):
                # Not chained: the cause may show secrets of the request.
                raise sorted_ from None
        try:
            return question()
        except Exception as problem:
            raise self._sorted(problem) from None

    def _sorted(self, problem: Exception) -> FrazilError:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        if isinstance(problem, FrazilError):
            return problem
        if not isinstance(problem, SchemaRegistryError):
            return request_problem(problem, self.shown, self._timeout)
        status, code = problem.http_status_code, problem.error_code
        return answered_problem(status, code, problem.error_message or "", self.shown)


def registry_client(settings: RegistrySettings | None) -> RegistryClient:
    """Return a client of the registry in the settings.

    Raises:
        RegistryRefusedError: The certificates cannot be used.
        FrazilError: The settings name no registry, the local registry does not run, or a secret is not set.
    """
    if settings is None:
        raise FrazilError("frazil.yaml names no schema registry.", fix=LINES_TO_ADD)
    return RegistryClient(registry_connection(settings))


def quick_registry(settings: RegistrySettings | None) -> RegistryClient:
    """Return a client that gives up after some seconds; it raises the same errors as `registry_client`."""
    if settings is not None:
        settings = settings.model_copy(update={"timeout": min(settings.timeout, timedelta(seconds=REGISTRY_SECONDS))})
    return registry_client(settings)


def _confluent_schema(kind: str, text: str, references: Sequence[Reference]) -> Schema:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(text, kind, [SchemaReference(each.name, each.subject, each.version) for each in references])
