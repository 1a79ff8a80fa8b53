"""Kafka's servers as people write them: ``host:port``, several of them as a list or with commas."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")


def _joined(value: object) -> Any:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise ValueError("must be host:port, or several of them")
    servers = [server.strip() for server in value.split(",") if server.strip()]
    for server in servers:
        match = _HOST_PORT.fullmatch(server)
        if match is None or not 0 < int(match[1]) < 65536:
            raise ValueError("must be host:port, or several separated by commas, without a scheme")
    if not servers:
        raise ValueError("must name at least one host:port")
    return ",".join(servers)


BootstrapServers = Annotated[str, BeforeValidator(_joined)]
