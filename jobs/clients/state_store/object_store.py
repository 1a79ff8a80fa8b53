"""Objects of an S3 bucket as documents of a shared state store: conditional PUTs decide among writers.

The client is botocore. It finds credentials as AWS's tools do, and reports of each request whether it was sent and how
it was answered. PyArrow's and s3fs's clients, which PyIceberg may bring, have no `If-None-Match`. botocore's own
retries are off, because only the caller knows whether a write may be repeated.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.base.errors import FrazilError
from jobs.clients.state_store.shared_store import (
    BusyStoreError,
    Expected,
    Version,
    matcher,
)
from jobs.clients.state_store.store import NotWrittenError

_NONCE = "frazil-nonce"
_CONNECT_SECONDS = 3.0
_REFUSED = frozenset({400, 401, 403})
# Error codes of S3 itself for requests that it did not carry out; a proxy's 503 may hide one that was carried out.
_DONE_NOTHING = frozenset({"SlowDown", "ConditionalRequestConflict", "OperationAborted", "RequestTimeTooSkewed"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """Bucket of a store, and options of its client.

    Attributes:
        prefix: Prefix of all objects, without slashes at its ends; may be empty.
        endpoint: Endpoint of a store other than AWS.
        options: Further arguments of botocore's client: region, certificate authorities, and keys, which are secrets
            and are read for each request.
        virtual_addressing: Whether the bucket's name is part of the host name even with an endpoint.
        answer_seconds: How long to wait for an answer.
    """

    name: str
    prefix: str
    endpoint: str | None
    options: Mapping[str, str]
    virtual_addressing: bool = False
    answer_seconds: float = 5.0

    def __repr__(self) -> str:
        return f"Bucket(s3://{self.name}/{self.prefix})"


class ObjectDocuments:
    """Documents of a bucket; see `jobs.clients.state_store.shared_store.Documents`. Threads may share it.

    Raises:
        FrazilError: The client is not installed.
    """

    def __init__(self, bucket: Bucket) -> None:
        try:
            # Imported here, at the first use of such a store: most processes have none.
            from botocore import exceptions
            from botocore.config import Config
        except ImportError:
            raise FrazilError(
                "State in an object store needs the package botocore, which is not installed.",
                fix="pip install 'frazil[s3]'",
            ) from None
        self._bucket: Bucket = bucket
        # HTTPClientError is raised for the response's body, too, which is read here.
        self._problems: tuple[type[Exception], ...] = (exceptions.BotoCoreError, exceptions.HTTPClientError)
        self._answered: type[Exception] = exceptions.ClientError
        self._unsent: tuple[type[Exception], ...] = (
            exceptions.EndpointConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.ProxyConnectionError,
            exceptions.SSLError,
            exceptions.ParamValidationError,
        )
        self._forbidden: tuple[type[Exception], ...] = (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.ParamValidationError,
        )
        path_style = bucket.endpoint is not None and not bucket.virtual_addressing
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=bucket.answer_seconds,
            retries={"total_max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if path_style else "auto"},
        )
        region: str | None = bucket.options.get("region_name", "us-east-1" if bucket.endpoint else None)
        try:
            session = session_with_keys(bucket.options)
            given = {"region_name": region, "verify": bucket.options.get("verify")}
            told = {name: value for name, value in given.items() if value}
            self._client: Any = session.create_client("s3", endpoint_url=bucket.endpoint, config=config, **told)
        except (*self._problems, ValueError) as problem:
            raise FrazilError(f"State store s3://{bucket.name}: {problem}.", fix="frazil validate") from None

    def read(self, key: str) -> Version | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket.name, Key=self._object(key))
            with answer["Body"] as body:
                content = body.read()
        except self._answered as problem:
            if _code(problem) in ("NoSuchKey", "404"):
                return None
            raise self._error(problem) from None
        except self._problems as problem:
            raise self._error(problem) from None
        return Version(content, answer["ETag"], answer.get("Metadata", {}).get(_NONCE, ""))

    def write(self, key: str, content: bytes, nonce: str, expected: Expected) -> bool:
        condition: dict[str, str] = {}
        if expected is None:
            condition = {"IfNoneMatch": "*"}
        elif expected is not True:
            condition = {"IfMatch": expected}
        try:
            self._client.put_object(
                Bucket=self._bucket.name,
                Key=self._object(key),
                Body=content,
                Metadata={_NONCE: nonce},
                ContentType="application/octet-stream",
                **condition,
            )
        except self._answered as problem:
            status = _status(problem)
            # 404: the object to replace was removed.
            if status == 412 or (status == 404 and _code(problem) == "NoSuchKey"):
                return False
            known = self._error(problem)
            raise NotWrittenError.of(known) if status in _REFUSED | {404} else known from None
        except self._problems as problem:
            known = self._error(problem)
            raise NotWrittenError.of(known) if isinstance(problem, self._unsent) else known from None
        return True

    def remove(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket.name, Key=self._object(key))
        except (self._answered, *self._problems) as problem:
            raise self._error(problem) from None

    def keys(self, pattern: str) -> list[str]:
        """List one level after the other, so that `streams/*/launch.json` lists no other documents of the streams."""
        found = [""]
        *folders, last = pattern.split("/")
        for segment in folders:
            if "*" not in segment:
                found = [f"{each}{segment}/" for each in found]
                continue
            wanted = matcher(segment)
            found = [
                f"{each}{name}/"
                for each in found
                for name in self._names(each, segment, folders=True)
                if wanted.fullmatch(name)
            ]
        wanted = matcher(last)
        return [
            each + name for each in found for name in self._names(each, last, folders=False) if wanted.fullmatch(name)
        ]

    def written_at(self, key: str) -> float | None:
        try:
            answer = self._client.head_object(Bucket=self._bucket.name, Key=self._object(key))
        except self._answered as problem:
            if _status(problem) == 404:
                return None
            raise self._error(problem) from None
        except self._problems as problem:
            raise self._error(problem) from None
        return answer["LastModified"].timestamp()

    def place(self, key: str) -> str:
        return f"s3://{self._bucket.name}/{self._object(key)}".rstrip("/")

    def is_there(self) -> bool:
        """Whether any object begins with the prefix."""
        return next(self._objects(), None) is not None

    def remove_all(self) -> None:
        """Remove every object that begins with the prefix.

        Raises:
            ValueError: The prefix is empty, which would remove the whole bucket.
        """
        if not self._bucket.prefix:
            raise ValueError(f"s3://{self._bucket.name} is not removed as a whole")
        for key in list(self._objects()):
            self.remove(key)

    def _objects(self) -> Iterator[str]:
        """Yield the keys of all documents, at any depth."""
        whole = self._object("")
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket.name, Prefix=whole):
                yield from (each["Key"].removeprefix(whole) for each in page.get("Contents", ()))
        except (self._answered, *self._problems) as problem:
            raise self._error(problem) from None

    def _names(self, folder: str, segment: str, *, folders: bool) -> Iterator[str]:
        """Yield the names of a level that begin like a segment of a pattern."""
        level = self._object(folder)
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket.name, Prefix=level + segment.partition("*")[0], Delimiter="/"
            ):
                if folders:
                    yield from (each["Prefix"].removeprefix(level)[:-1] for each in page.get("CommonPrefixes", ()))
                else:
                    # Some stores list a folder as an object.
                    names = (each["Key"].removeprefix(level) for each in page.get("Contents", ()))
                    yield from (name for name in names if name)
        except (self._answered, *self._problems) as problem:
            raise self._error(problem) from None

    def _object(self, key: str) -> str:
        return f"{self._bucket.prefix}/{key}" if self._bucket.prefix else key

    def _error(self, problem: Exception) -> OSError:
        """Return the error without secrets: botocore's message names the host, the code and the request."""
        where = self.place("")
        if isinstance(problem, self._answered):
            status, code = _status(problem), _code(problem)
            sentence = f"{where}: {code} ({status})"
            if code in _DONE_NOTHING or status in (409, 429):
                return BusyStoreError(errno.EAGAIN, sentence)
            if status in _REFUSED or code == "NoSuchBucket":
                return PermissionError(errno.EACCES, sentence)
            return OSError(errno.EIO, sentence)
        kind = PermissionError if isinstance(problem, self._forbidden) else OSError
        return kind(errno.EACCES if kind is PermissionError else errno.EIO, f"{where}: {problem}")


def _status(problem: Any) -> int:
    return problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _code(problem: Any) -> str:
    return problem.response.get("Error", {}).get("Code", "")


KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def session_with_keys(options: Mapping[str, str]) -> Any:
    """Return a botocore session with the keys in `options`, else with those that AWS's tools would find.

    Args:
        options: Options of a client; the keys are read from them repeatedly.
    """
    from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials
    from botocore.session import Session

    session: Any = Session()
    if KEYS[0] not in options:
        return session

    class PresentKeys(Credentials):
        def get_frozen_credentials(self) -> Any:
            try:
                found = [options.get(name) for name in KEYS]
            except FrazilError:
                # The file may be being replaced: keep the former keys.
                return super().get_frozen_credentials()
            self.access_key, self.secret_key, self.token = found
            return ReadOnlyCredentials(*found)

    class Provider(CredentialProvider):
        METHOD = CANONICAL_NAME = "frazil"

        def load(self) -> Any:
            return PresentKeys(*(options.get(name) for name in KEYS))

    session.get_component("credential_provider").insert_before("env", Provider())
    return session
