"""Who gives a command; a module of its own, so that what only asks this does not wait for Dagster."""

from __future__ import annotations

import getpass
import socket


def asker() -> str:
    """Who asks: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
