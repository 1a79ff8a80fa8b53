"""Processes, identified by pid *and* start time: a pid alone may belong to another process by now.

psutil is not used: state files hold start times in the notation of /proc, and a watchdog, which waits with a few
megabytes, imports this module.
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
# Separates the clock ticks from the PID namespace in a start time.
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
    """Whether a recorded process runs; None if this host or container cannot see it.

    Containers share a kernel, and may share a host name, but do not see one another's processes.

    Args:
        started: Start time that `start_time` returned to the process itself.
        boot, host: Boot identity and host name at the time of the record.
    """
    if (boot, host) != (boot_id(), socket.gethostname()):
        return None
    namespace = started.partition(_NAMESPACE)[2]
    return None if namespace and namespace != _pid_namespace() else is_alive(pid, started)


def stop_process(pid: int, started: str | None, grace_seconds: float) -> bool:
    """End a process with SIGTERM, and with SIGKILL if it still runs after the grace period.

    If the process leads a process group, the signals go to the whole group, and the rest of the group is killed too.

    Args:
        pid: The process.
        started: Its recorded start time. If the pid has another one now, nothing happens.
        grace_seconds: How long it may take to end by itself.

    Returns:
        Whether the process was alive.
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
    """Return the living processes of a session: a JVM's Python workers share its session, but not its group."""
    if not _has_proc():
        return _session_members_from_ps(session)
    return [pid for pid, fields in proc_stats() if int(fields[3]) == session and not _is_dead(fields)]


def proc_stats(proc: Path = _PROC) -> Iterator[tuple[int, list[str]]]:
    """Yield the pid of each process, zombies included, and its fields in /proc from the state on.

    Processes that the kernel hides from this user (`hidepid`) are left out. Without /proc the result is empty.
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
    """Whether a process was started with this environment variable; False if its environment cannot be read."""
    if _has_proc():
        with contextlib.suppress(OSError):
            return f"{variable}={value}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        return False
    answer = _ps("eww", "-o", "command=", "-p", str(pid))
    return f"{variable}={value}" in answer.split()


def command_of(pid: int) -> str:
    """Return a process's command line, its words separated by blanks; empty if it ended or cannot be read."""
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
        # Some systems print an address as `sess`, so the process group is compared as well.
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
    """Return the inode of this process's PID namespace; empty if the system has none."""
    with contextlib.suppress(OSError):
        return str((_PROC / "self" / "ns" / "pid").stat().st_ino)
    return ""


def _stat(pid: int, proc: Path = _PROC) -> list[str] | None:
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command's name in brackets, and may itself hold brackets. The fields after it, by their
    # numbers in `man 5 proc`: state (3), parent (4), session (6), times (14 to 17), number of threads (20) and start
    # time (22). In this list they have the indices 0, 1, 3, 11 to 14, 17 and 19.
    return text.rpartition(")")[2].split()


def _is_dead(fields: list[str]) -> bool:
    return fields[0] in "ZXx" and int(fields[17]) <= 1


def _start_time_from_ps(pid: int) -> str | None:
    state, _, started = _ps("-o", "state=,lstart=", "-p", str(pid)).strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()
