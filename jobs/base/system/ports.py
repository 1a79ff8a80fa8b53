"""Free ports of 127.0.0.1 that stay a service's own while it is down.

The system gives a port of its ephemeral range (32768 to 60999 on Linux) to each connection that names none. A broker
with such a port may find it taken when it restarts: by another program's connection, or by a client of this broker
that has connected to itself while it waits. So ports are chosen outside of that range.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

HOST = "127.0.0.1"
_FIRST, _LAST = 10_000, 65_535
# IANA's ephemeral range, which macOS and Windows use; for systems that do not report theirs.
_USUAL_EPHEMERAL = (49_152, 65_535)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def free_ports(count: int) -> list[int]:
    """Return different ports on which nothing listened just now, outside the system's ephemeral range if it leaves any.

    Raises:
        OSError: No port is free.
    """
    first, last = ephemeral_range()
    ours = [*range(_FIRST, first), *range(last + 1, _LAST + 1)]
    with ExitStack() as opened:
        found: list[int] = []
        for port in random.sample(ours, min(_TRIES, len(ours))):
            if len(found) == count:
                break
            probe = opened.enter_context(socket.socket())
            if _binds(probe, port):
                found.append(port)
        while len(found) < count:
            probe = opened.enter_context(socket.socket())
            probe.bind((HOST, 0))
            found.append(probe.getsockname()[1])
        return found


def is_port_free(port: int) -> bool:
    """True if a server could listen on the port; connections of an earlier one that linger are no obstacle."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _binds(probe, port)


def ephemeral_range(of: Path = _EPHEMERAL) -> tuple[int, int]:
    """Return the first and last port that the system gives to connections which name none."""
    try:
        first, last = (int(each) for each in of.read_text().split())
    except (OSError, ValueError):
        return _USUAL_EPHEMERAL
    return first, last


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True
