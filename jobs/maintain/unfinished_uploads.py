"""Uploads to S3 that were begun and never finished: invisible parts of files, which are paid for until somebody aborts.

A task or a driver that is killed amid a large file leaves one. No listing of files shows it, and no client of PyArrow's
can ask for it, so botocore does, where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyiceberg.table import Table

from jobs.maintain.table_files import store_of, without_store
from jobs.spec.catalog_properties import STORE_AUTHORITIES

_SCHEMES = ("s3", "s3a", "s3n")
# By a catalog's property, and by what PyIceberg takes for all services of AWS.
_CLIENT = {
    "region_name": ("s3.region", "client.region"),
    "aws_access_key_id": ("s3.access-key-id", "client.access-key-id"),
    "aws_secret_access_key": ("s3.secret-access-key", "client.secret-access-key"),
    "verify": (STORE_AUTHORITIES,),
    "aws_session_token": ("s3.session-token", "client.session-token"),
}
# Ways to a store that botocore is not told of here.
_OTHER_WAYS = ("s3.role-arn", "client.role-arn", "s3.signer", "s3.remote-signing-enabled", "s3.anonymous")
_SECONDS = 30.0
MOST = 10_000
"""Uploads that one run aborts; the next one goes on."""


class _Client:
    """S3 as botocore speaks to it, for one bucket."""

    def __init__(self, bucket: str, properties: Mapping[str, str]) -> None:
        from botocore.config import Config
        from botocore.session import Session

        endpoint = properties.get("s3.endpoint")
        virtual = properties.get("s3.force-virtual-addressing", "false").lower() == "true"
        proxy = properties.get("s3.proxy-uri")
        config = Config(
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            proxies={"http": proxy, "https": proxy} if proxy else None,
            s3={"addressing_style": "path" if endpoint and not virtual else "auto"},
        )
        options: dict[str, Any] = {"region_name": "us-east-1"} if endpoint else {}
        for option, names in _CLIENT.items():
            if value := next((properties[name] for name in names if properties.get(name)), None):
                options[option] = value
        session = Session(profile=properties.get("s3.profile-name"))
        self._bucket: str = bucket
        self._client: Any = session.create_client("s3", endpoint_url=endpoint, config=config, **options)

    def before(self, prefix: str, older_than: datetime) -> list[tuple[str, str]]:
        """Keys and ids of the uploads below a prefix that were begun before an instant."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        return [
            (each["Key"], each["UploadId"])
            for page in pages
            for each in page.get("Uploads", ())
            # A store that does not say when an upload was begun has none that is known to be old.
            if each["Key"].startswith(prefix) and (begun := each.get("Initiated")) is not None and begun < older_than
        ]

    def abort(self, key: str, upload: str) -> bool:
        """Abort an upload; False if somebody has finished or aborted it meanwhile."""
        from botocore.exceptions import ClientError

        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
        except ClientError as problem:
            if problem.response.get("Error", {}).get("Code") != "NoSuchUpload":
                raise
            return False
        return True


class UnfinishedUploads:
    """Uploads below a table's location that are older than an orphan may be.

    Attributes:
        found: Their keys and ids.
        aborted: How many were aborted.
        unknown: Why it is not known whether there are more, or why some are left; empty if all is known.
    """

    def __init__(self, unknown: str = "", client: _Client | None = None, found: Sequence[tuple[str, str]] = ()) -> None:
        self.unknown: str = unknown
        self.found: Sequence[tuple[str, str]] = found
        self.aborted: int = 0
        self._client: _Client | None = client

    def abort(self) -> None:
        """Abort them. What the store says against it is `unknown`."""
        assert self._client is not None
        try:
            for key, upload in self.found[:MOST]:
                self.aborted += self._client.abort(key, upload)
        except _problems() as problem:
            self.unknown = _words(problem)
            return
        if len(self.found) > MOST:
            self.unknown = f"a run aborts {MOST:,} of them at most"


def unfinished_uploads(table: Table, older_than: datetime) -> UnfinishedUploads | None:
    """The uploads below a table's location that were begun before an instant; None if it lies in no S3.

    Never raises for what the store answers: what nobody can see keeps no table from its maintenance.
    """
    scheme, bucket = store_of(table.location())
    if scheme not in _SCHEMES:
        return None
    # A key may have `#` and `?` in it, which no URL's path has.
    folder = without_store(table.location()).strip("/")
    properties = {key: str(value) for key, value in table.io.properties.items()}
    if given := [key for key in _OTHER_WAYS if properties.get(key, "false").lower() != "false"]:
        return UnfinishedUploads(f"with {given[0]} they are not looked for")
    try:
        problems = _problems()
    except ImportError:
        return UnfinishedUploads("botocore is not installed: pip install 'frazil[s3]'")
    try:
        client = _Client(bucket, properties)
        return UnfinishedUploads("", client, client.before(f"{folder}/", older_than))
    except (*problems, ValueError) as problem:
        return UnfinishedUploads(_words(problem))


def _problems() -> tuple[type[Exception], ...]:
    """What botocore raises; of an answer that is not S3's, as of a proxy, an error of its parser, which has no base."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError


def _words(problem: Exception) -> str:
    """What botocore says: the host, the code and the request, and no secret."""
    return " ".join(str(problem).split())
