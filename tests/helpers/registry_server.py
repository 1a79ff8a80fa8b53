"""Server that answers as a schema registry and its identity provider do, over HTTP or HTTPS, and looks at who asks."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.http_service import QuietHandler, serving_http

SCHEMA = '"string"'


def basic(user: str, password: str) -> str:
    """The header of a user and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@dataclass
class RegistryServer:
    """The registry's answers, and the requests that it got.

    Attributes:
        schemas: The schemas by id.
        subjects: Version numbers of each subject.
        newest: Kind and text of the newest version of subjects; its number is 1, its id the place here from 1.
        guids: Schemas by GUID; None for a registry without GUIDs.
        authorization: Function that returns the required header; None admits everybody.
        token_answer: Answer of the identity provider at `/token`: a status and a body.
        broken: Status and text of every answer, in place of the right one.
        asked: Paths and headers of the requests.
        forms: The forms that were sent to `/token`.
    """

    schemas: dict[int, str] = field(default_factory=lambda: {1: SCHEMA})
    subjects: dict[str, list[int]] = field(default_factory=dict)
    newest: dict[str, tuple[str, str]] = field(default_factory=dict)
    guids: dict[str, str] | None = None
    authorization: Callable[[], str | None] = lambda: None
    token_answer: Callable[[], tuple[int, dict[str, Any]]] = lambda: (404, {})
    broken: tuple[int, str] | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        """The status and the body of an answer."""
        self.asked.append((path, headers))
        if self.broken is not None:
            return self.broken
        if path == "/token":
            self.forms.append(body)
            status, found = self.token_answer()
            return status, json.dumps(found)
        wanted = self.authorization()
        if wanted is not None and headers.get("authorization") != wanted:
            return 401, json.dumps({"error_code": 401, "message": "Unauthorized"})
        page = path.partition("?")[0]
        if page.startswith("/schemas/ids/"):
            number = int(page.rpartition("/")[2])
            if number in self.schemas:
                return 200, json.dumps({"schema": self.schemas[number]})
            return 404, json.dumps({"error_code": 40403, "message": f"Schema {number} not found"})
        if page.startswith("/schemas/guids/") and self.guids is not None:
            guid = page.rpartition("/")[2]
            if guid in self.guids:
                return 200, json.dumps({"schema": self.guids[guid], "guid": guid, "id": 1})
            return 404, json.dumps({"error_code": 40403, "message": f"Schema {guid} not found"})
        if page.startswith("/subjects/") and page.endswith("/versions"):
            if (versions := self.subjects.get(page.split("/")[2])) is not None:
                return 200, json.dumps(versions)
            return 404, json.dumps({"error_code": 40401, "message": "No such subject"})
        if page.startswith("/subjects/") and page.endswith("/versions/latest"):
            subject = page.split("/")[2]
            if subject not in self.newest:
                return 404, json.dumps({"error_code": 40401, "message": "No such subject"})
            kind, text = self.newest[subject]
            number = list(self.newest).index(subject) + 1
            return 200, json.dumps({"subject": subject, "version": 1, "id": number, "schemaType": kind, "schema": text})
        if page.startswith("/subjects/") and "/versions/" in page:
            return 404, json.dumps({"error_code": 40402, "message": "No artifact with such a version in group 'null'"})
        if page in ("/subjects", "/schemas/types"):
            return 200, "[]"
        return 404, "<html>no such page</html>"


@contextlib.contextmanager
def serving(server: RegistryServer, tls: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """Answers on a free port of loopback until the end; `url` says where."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, text = server.answer(self.path, headers, self.body().decode())
            self.say(status, text.encode())

        do_POST = do_PUT = do_GET  # noqa: N815

    with serving_http(Handler, tls) as port:
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server
