"""Identity provider for tests: hands out signed tokens of a short life to whoever knows a client's secret, over TLS."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

from joserfc import jwk, jwt

from tests.helpers.http_service import QuietHandler, serving_http

ISSUER = "https://idp.test"


@dataclass
class TokenServer:
    """State of the server.

    Attributes:
        url: URL where tokens are issued.
        keys: File with the public key that signs them, for a broker.
        clients: Secrets by client; may be changed.
        seconds: Lifetime of a token.
        issued: Numbers of issued tokens by client and requesting program (`java` or `librdkafka`).
        refused: Number of requests with an unknown client or a wrong secret.
        away: Whether the server is unavailable.
    """

    url: str
    keys: Path
    clients: dict[str, str]
    seconds: int
    issued: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: int = 0
    away: bool = False


@contextlib.contextmanager
def token_server(folder: Path, keystore: Path, clients: Mapping[str, str], seconds: int) -> Iterator[TokenServer]:
    """Run it until the end.

    Args:
        folder: Folder for its public key.
        keystore: PEM file of its own private key and certificate, for 127.0.0.1.
        clients: Secrets by client.
        seconds: Lifetime of a token.
    """
    key = jwk.RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))

    class Answer(QuietHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:  # noqa: N802
            body = parse_qs(self.body().decode())
            given = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
            client, _, secret = given.partition(":")
            if found.away:
                self.send_error(503)
            elif found.clients.get(client) != secret or body["grant_type"] != ["client_credentials"]:
                found.refused += 1
                self.say(401, {"error": "invalid_client"})
            else:
                self.issue(client, body)

        def issue(self, client: str, body: Mapping[str, list[str]]) -> None:
            program = "java" if "java" in self.headers.get("User-Agent", "").lower() else "librdkafka"
            found.issued[client, program] += 1
            now = int(time.time())
            claims = {"iss": ISSUER, "sub": client, "aud": "kafka", "iat": now, "exp": now + found.seconds}
            claims |= {"scope": body["scope"][0]} if "scope" in body else {}
            token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
            self.say(200, {"access_token": token, "token_type": "Bearer", "expires_in": found.seconds})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)
    found = TokenServer("", keys, dict(clients), seconds)
    with serving_http(Answer, context) as port:
        found.url = f"https://127.0.0.1:{port}/token"
        yield found
