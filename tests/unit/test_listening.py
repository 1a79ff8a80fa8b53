"""The eye with which other tests look for open ports sees what is open, and tells it from loopback."""

from __future__ import annotations

import os
import socket

import pytest

from tests.helpers.listening import listening


@pytest.mark.parametrize(
    ("family", "address", "exposed"),
    [
        (socket.AF_INET, "127.0.0.1", False),
        (socket.AF_INET, "127.1.2.3", False),
        (socket.AF_INET, "0.0.0.0", True),
        (socket.AF_INET6, "::1", False),
        (socket.AF_INET6, "::ffff:127.0.0.1", False),
        (socket.AF_INET6, "::", True),
    ],
)
def test_a_socket_is_seen_with_its_address(family: int, address: str, exposed: bool) -> None:
    with socket.socket(family) as own:
        try:
            own.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        own.listen()
        (found,) = [each for each in listening([os.getpid()]) if each.port == own.getsockname()[1]]
    assert found.exposed is exposed
    assert "python" in found.command
    assert str(found.address) == address.removeprefix("::ffff:")
