"""Listening sockets of processes, by the kernel: each with its address, so that none is open by oversight."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True, slots=True)
class Listening:
    """A TCP socket that waits for connections.

    Attributes:
        command: The command line of the process that holds it.
        address: Address that it listens on; of an IPv4 address within IPv6 the IPv4 one.
    """

    pid: int
    command: str
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @property
    def exposed(self) -> bool:
        """Whether other machines may reach it."""
        return not self.address.is_loopback


def listening(pids: Iterable[int]) -> list[Listening]:
    """The listening sockets of some processes; those that end meanwhile have none."""
    sockets = _sockets()
    found: list[Listening] = []
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        try:
            command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
            links = list((folder / "fd").iterdir())
        except OSError:
            continue
        for link in links:
            # Of this very process one is the listing of the folder, which is gone by now.
            with contextlib.suppress(OSError):
                inode = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
                if inode and inode[1] in sockets:
                    found.append(Listening(pid, command, *sockets[inode[1]]))
    return found


def _sockets() -> dict[str, tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    found: dict[str, tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]] = {}
    for name in ("tcp", "tcp6"):
        table = Path("/proc/net") / name
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == _LISTEN:
                address, port = fields[1].split(":")
                found[fields[9]] = _address(address), int(port, 16)
    return found


def _address(digits: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    # Words of 32 bits, each in the order of this machine.
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))
    if isinstance(address, ipaddress.IPv6Address) and address in _MAPPED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
