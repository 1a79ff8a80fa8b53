"""Spark's master: whether tasks run locally or on a cluster, and whether a standalone master can be reached."""

from __future__ import annotations

import ipaddress
import re
import socket

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import SETTINGS_FILE, Settings

_STANDALONE = "spark://"
_DEFAULT_PORT = 7077
_SECONDS = 3.0
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:]+)(?::([0-9]+))?")
_DRIVER_HOST = "spark.driver.host"


class MasterUnavailableError(FrazilError):
    """Spark's master does not answer, or did not accept the application.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: start the master, or correct `spark.master`; a driver waits
    """


def master_of(settings: Settings) -> str:
    """Return the master of new sessions."""
    given = settings.spark.conf.get("spark.master")
    return given if isinstance(given, str) else settings.spark.master


def is_local(master: str) -> bool:
    """Whether tasks run within the driver's JVM."""
    return master == "local" or master.startswith("local[")


def standalone_addresses(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master in a `spark://` address; empty for other cluster managers.

    Raises:
        FrazilError: The address is invalid.
    """
    if not master.startswith(_STANDALONE):
        return []
    found: list[tuple[str, int]] = []
    for each in master.removeprefix(_STANDALONE).split(","):
        match = _ADDRESS.fullmatch(each)
        if match is None or int(match[2] or 0) > 65535:
            raise FrazilError(
                f"spark.master: {master} is not spark://HOST:PORT, nor several of them separated by commas.",
                fix=f"correct spark.master in {SETTINGS_FILE}, then run `frazil validate`",
            )
        found.append((match[1].strip("[]"), int(match[2] or _DEFAULT_PORT)))
    return found


def require_master(settings: Settings, seconds: float = _SECONDS) -> None:
    """Raise unless a standalone master listens; other masters are not checked.

    Spark itself would try for a minute, and then fail without naming host or reason.

    Args:
        seconds: How long each master may take to accept a connection.

    Raises:
        MasterUnavailableError: No master listens.
        FrazilError: `spark.master` is invalid.
    """
    if problems := unanswered(master_of(settings), seconds):
        raise MasterUnavailableError(
            f"Spark's master does not answer at {problems}.",
            fix=f"start the master, or correct spark.master in {SETTINGS_FILE}",
        )


def unanswered(master: str, seconds: float = _SECONDS) -> str:
    """Return which standalone masters do not listen, and why; empty if one listens, or none is named.

    Args:
        seconds: How long each master may take to accept a connection.
    """
    problems: list[str] = []
    for host, port in standalone_addresses(master):
        try:
            socket.create_connection((host, port), timeout=seconds).close()
        except OSError as problem:
            problems.append(f"{host}:{port}: {problem.strerror or problem}")
        else:
            return ""
    return "; ".join(problems)


def not_accepted(master: str, text: str) -> MasterUnavailableError | None:
    """Return the error if a start failed because a master that listens did not accept the application; else None.

    Args:
        master: Master of the session.
        text: Spark's error text.
    """
    if is_local(master) or "stopped SparkContext" not in text:
        return None
    return MasterUnavailableError(
        f"Spark's master {master} listens, and did not accept the application.",
        fix="see that spark.authenticate and its secret are those of the master; read spark.log and the master's log",
    )


def driver_out_of_reach(settings: Settings) -> str | None:
    """Return why executors on other machines cannot reach a driver; None if no reason is known.

    A driver announces 127.0.0.1 unless `spark.driver.host` is set, which works only if the whole cluster is on this
    machine.
    """
    master = master_of(settings)
    if is_local(master):
        return None
    host = settings.spark.conf.get(_DRIVER_HOST)
    if isinstance(host, str) and not _is_loopback(host):
        return None
    addresses = standalone_addresses(master)
    if addresses and all(_is_loopback(each) for each, _ in addresses):
        return None
    return f"executors of {master} would look for the driver at {host or '127.0.0.1'}, which is their own machine"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
