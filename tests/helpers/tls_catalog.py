"""A REST catalog over TLS that has one namespace, and nothing else to say."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator

from tests.helpers.http_service import QuietHandler, serving_http
from tests.helpers.tls import Tls


class _Answers(QuietHandler):
    def do_GET(self) -> None:  # noqa: N802
        self.say(200, {"defaults": {}, "overrides": {}} if "config" in self.path else {"namespaces": [["lake"]]})


@contextlib.contextmanager
def silent_catalog(tls: Tls, *, certificates: bool = False) -> Iterator[str]:
    """Run the catalog within the block, and yield its URI.

    Args:
        tls: Files of the authority that has signed its certificate.
        certificates: Whether clients need a certificate of the same authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.keystore)
    if certificates:
        context.load_verify_locations(tls.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    with serving_http(_Answers, context) as port:
        yield f"https://127.0.0.1:{port}"
