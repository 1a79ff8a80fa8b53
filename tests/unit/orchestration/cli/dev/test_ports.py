"""Two deployments that start at once never get the same port."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.system.ports import free_ports
from orchestration.cli.dev.services import PortClaim


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_whoever_comes_second_gets_another_one_though_nobody_listens_yet() -> None:
    (usual,) = free_ports(1)
    first, second = PortClaim(usual=usual), PortClaim(usual=usual)
    assert first.port == usual != second.port
    # The next one, and not any that the system gives: it gives those to others too, before the webserver listens.
    assert first.port < second.port < first.port + 100
    with pytest.raises(FrazilError, match=f"Port {first.port} is taken"):
        PortClaim(first.port)
    port = first.port
    first.release()
    third = PortClaim(port)
    assert third.port == port
    second.release()
    third.release()


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(FrazilError, match=f"Port {port} is taken"):
            PortClaim(port)
