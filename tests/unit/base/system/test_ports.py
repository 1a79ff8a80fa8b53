"""Free ports: different, outside the range from which connections take theirs, and taken ones are seen."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jobs.base.system import ports
from jobs.base.system.ports import (
    HOST,
    ephemeral_range,
    free_ports,
    is_port_free,
)


def test_they_are_different_free_and_no_connections_own() -> None:
    found = free_ports(50)
    first, last = ephemeral_range()
    assert len(set(found)) == 50
    assert all(10_000 <= each < first or last < each <= 65_535 for each in found)
    assert any(map(is_port_free, found))


def test_one_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        assert not is_port_free(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32768\t60999\n", (32768, 60999)),
        ("1024 65535", (1024, 65535)),
        ("", (49152, 65535)),
        ("all", (49152, 65535)),
        (None, (49152, 65535)),
    ],
)
def test_the_range_is_what_the_system_says(tmp_path: Path, text: str | None, expected: tuple[int, int]) -> None:
    file = tmp_path / "ip_local_port_range"
    if text is not None:
        file.write_text(text)
    assert ephemeral_range(file) == expected


def test_where_connections_may_take_every_port_any_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ephemeral_range", lambda: (1024, 65535))
    assert len(set(free_ports(3))) == 3
