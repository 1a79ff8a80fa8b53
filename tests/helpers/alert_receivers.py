"""Receivers of alerts for tests: an HTTP endpoint that keeps what it is sent, and a mail server."""

from __future__ import annotations

import base64
import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from tests.helpers.http_service import QuietHandler, serving_http


@dataclass(slots=True)
class Hook:
    """An HTTP endpoint.

    Attributes:
        status, answer: What it answers with.
        posts: The documents that it took, those that it refused included.
        headers: Headers of each request, with names in lower case.
        paths: Path of each request.
    """

    port: int = 0
    status: int = 200
    answer: Any = field(default_factory=lambda: {"ok": True})
    posts: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """Alerts of all messages, in order."""
        return [alert for post in self.posts for alert in post["alerts"]]


@contextlib.contextmanager
def receiving_hook() -> Iterator[Hook]:
    """Serve an endpoint until the end of the block."""
    hook = Hook()

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802
            hook.paths.append(self.path)
            hook.headers.append({name.lower(): value for name, value in self.headers.items()})
            hook.posts.append(json.loads(self.body()))
            self.say(hook.status, hook.answer)

    with serving_http(Handler) as port:
        hook.port = port
        yield hook


@dataclass(slots=True)
class Mailbox:
    """A mail server without encryption.

    Attributes:
        refuses: Status with which it answers a mail; 0: it takes it.
        mails: The mails that it took.
        logins: User and password of each login.
    """

    port: int = 0
    refuses: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    logins: list[tuple[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def receiving_mail() -> Iterator[Mailbox]:
    """Serve a mail server (RFC 5321, as far as a client of the library asks) until the end of the block."""
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            self.say("220 here")
            while line := self.rfile.readline().decode().strip():
                verb = line.partition(" ")[0].upper()
                if verb == "EHLO":
                    self.say("250-here\r\n250 AUTH PLAIN")
                elif verb == "AUTH":
                    _, user, password = base64.b64decode(line.split()[2]).decode().split("\0")
                    box.logins.append((user, password))
                    self.say("235 welcome")
                elif verb == "DATA":
                    self.say("354 go on")
                    self.take()
                elif verb == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 fine")

        def take(self) -> None:
            lines: list[bytes] = []
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
            if box.refuses:
                self.say(f"{box.refuses} not now")
                return
            box.mails.append(cast("EmailMessage", message_from_bytes(b"".join(lines), policy=policy.default)))
            self.say("250 taken")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        box.port = server.server_address[1]
        try:
            yield box
        finally:
            server.shutdown()
            thread.join()
