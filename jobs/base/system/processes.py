"""Processes, told apart by pid *and* start time: a pid alone may belong to somebody else by now.

Written by hand: psutil is no dependency, start times are kept in state files in the notation of /proc, and a keeper,
which waits with a few megabytes, has to import this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from jobs.base.system.boot import boot_id

_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_KILL_DEADLINE_SECONDS = 60.0
# Between the clock ticks and the PID namespace of a start time.
_NAMESPACE = "@"


def start_time(pid: int) -> str | None:
    """Return when the process started, in the system's own notation, or None if it is dead.

    A zombie is dead once its last thread is: until then a killed JVM still holds its ports and locks.

    The text only serves comparison. On Linux it is the clock ticks since boot and this process's PID namespace, such as
    `123456@4026531836`; records of earlier releases lack the namespace. Elsewhere it is a local time.
    """
    if _has_proc():
        return _start_time_from_proc(pid)
    return _start_time_from_ps(pid)


def is_alive(pid: int, started: str | None) -> bool:
    """True if the process `pid` runs and is the one that started at `started`, as `start_time` returned it."""
    now = start_time(pid) if started is not None else None
    if now is None or started is None:
        return False
    return now == started if _NAMESPACE in started else now.partition(_NAMESPACE)[0] == started


def lives_here(pid: int, started: str, boot: str, host: str) -> bool | None:
    """Whether a process on record runs; None if that cannot be told from this host, or from this container.

    Containers share a kernel, and may share a host name. They see one another's processes as little as those of
    another host.

    Args:
        started: As `start_time` returned it to the process itself.
        boot, host: As `boot_id` and the host's name were when the process was recorded.
    """
    if (boot, host) != (boot_id(), socket.gethostname()):
        return None
    namespace = started.partition(_NAMESPACE)[2]
    return None if namespace and namespace != _pid_namespace() else is_alive(pid, started)


def stop_process(pid: int, started: str | None, grace_seconds: float) -> bool:
    """End a process with SIGTERM, and with SIGKILL if it is still there after the grace.

    If it leads a process group, the signals go to the group, and what is left of the group goes with it.

    Args:
        pid: The process.
        started: Its recorded start time; if the pid's is another one by now, nothing is done.
        grace_seconds: How long it may take to end by itself.

    Returns:
        Whether it was alive.
    """
    if not is_alive(pid, started):
        return False
    with contextlib.suppress(ProcessLookupError):
        leads = os.getpgid(pid) == pid != os.getpgrp()
        _send(pid, signal.SIGTERM, group=leads)
        if not wait_until_dead(pid, started, grace_seconds):
            _send(pid, signal.SIGKILL, group=leads)
            wait_until_dead(pid, started, _KILL_DEADLINE_SECONDS)
        elif leads:
            _send(pid, signal.SIGKILL, group=True)
    return True


def wait_until_dead(pid: int, started: str | None, seconds: float) -> bool:
    """Wait for a process to end; False if it still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while is_alive(pid, started):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def session_members(session: int) -> list[int]:
    """The living processes of a session; a JVM's Python workers have groups of their own, but not sessions."""
    if not _has_proc():
        return _session_members_from_ps(session)
    return [pid for pid, fields in proc_stats() if int(fields[3]) == session and not _is_dead(fields)]


def proc_stats(proc: Path = _PROC) -> Iterator[tuple[int, list[str]]]:
    """What the kernel says of each process, zombies included: its pid, and its fields from the state on.

    Processes that it does not show to this user (`hidepid`) are left out; without /proc all are.
    """
    pids: list[int] = []
    with contextlib.suppress(OSError):
        pids = [int(folder.name) for folder in proc.iterdir() if folder.name.isdigit()]
    for pid in pids:
        fields: list[str] | None = None
        with contextlib.suppress(OSError):
            fields = _stat(pid, proc)
        if fields is not None:
            yield pid, fields


def was_given(pid: int, variable: str, value: str) -> bool:
    """Whether a process was started with this environment variable, as it is inherited; False if nobody may know."""
    if _has_proc():
        with contextlib.suppress(OSError):
            return f"{variable}={value}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        return False
    answer = _ps("eww", "-o", "command=", "-p", str(pid))
    return f"{variable}={value}" in answer.split()


def command_of(pid: int) -> str:
    """A process's command line, its words separated by blanks; empty if it is gone, or nobody may know."""
    if _has_proc():
        with contextlib.suppress(OSError):
            return (_PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
        return ""
    return _ps("-ww", "-o", "command=", "-p", str(pid)).strip()


def _has_proc() -> bool:
    return _PROC.joinpath("self", "stat").exists()


def _ps(*arguments: str) -> str:
    return subprocess.run(
        ["ps", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout


def _session_members_from_ps(session: int) -> list[int]:
    found: list[int] = []
    for line in _ps("-A", "-o", "pid=,sess=,pgid=,state=").splitlines():
        pid, sess, group, state = line.split()[:4]
        # Where `sess` is an address and not a number, the process group has to do.
        if not state.startswith("Z") and str(session) in (sess, group):
            found.append(int(pid))
    return found


def _send(pid: int, which: signal.Signals, *, group: bool) -> None:
    if group:
        os.killpg(pid, which)
    else:
        os.kill(pid, which)


def _start_time_from_proc(pid: int) -> str | None:
    fields = _stat(pid)
    if fields is None or _is_dead(fields):
        return None
    namespace = _pid_namespace()
    return f"{fields[19]}{_NAMESPACE}{namespace}" if namespace else fields[19]


def _pid_namespace() -> str:
    """The inode of this process's PID namespace; empty where the system has none to offer."""
    with contextlib.suppress(OSError):
        return str((_PROC / "self" / "ns" / "pid").stat().st_ino)
    return ""


def _stat(pid: int, proc: Path = _PROC) -> list[str] | None:
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command's name in brackets, which may hold anything, brackets too; `man 5 proc` counts
    # from 1, so after it the state (3), the parent (4), the session (6), the times (14 to 17), the number of threads
    # (20) and the start time (22) are at places 0, 1, 3, 11 to 14, 17 and 19.
    return text.rpartition(")")[2].split()


def _is_dead(fields: list[str]) -> bool:
    return fields[0] in "ZXx" and int(fields[17]) <= 1


def _start_time_from_ps(pid: int) -> str | None:
    state, _, started = _ps("-o", "state=,lstart=", "-p", str(pid)).strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()
