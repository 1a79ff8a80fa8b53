"""TLS in front of a service that has none: bytes are passed on as they come."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

from tests.helpers.tls import Tls


@contextlib.contextmanager
def tls_proxy(port: int, tls: Tls) -> Iterator[int]:
    """Pass on what comes to a free port of the loopback, within TLS, to another one until the end; gives that port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.keystore)
    ended = threading.Event()

    def serve(client: socket.socket) -> None:
        # Whoever does not trust the certificate goes away at once.
        with (
            contextlib.suppress(OSError),
            client,
            context.wrap_socket(client, server_side=True) as inside,
            socket.create_connection(("127.0.0.1", port)) as server,
        ):
            back = threading.Thread(target=pass_on, args=(server, inside), daemon=True)
            back.start()
            pass_on(inside, server)
            back.join(60)

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                target.sendall(content)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)

        def accept() -> None:
            while not ended.is_set():
                with contextlib.suppress(TimeoutError, OSError):
                    client, _ = listening.accept()
                    client.settimeout(None)
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            ended.set()
            thread.join()
