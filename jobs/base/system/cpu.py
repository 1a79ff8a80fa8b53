"""CPU time of a process and everything it started: the Spark JVM and its Python workers included."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jobs.base.system.processes import proc_stats


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    ticks: int


def tree_cpu_seconds(root: int | None = None) -> float | None:
    """User and system time of a process, its living descendants, and those of them that ended and were waited for.

    A descendant whose parent ended before it is not found, since it belongs to nobody any more.

    Args:
        root: The process's id; this process if None.

    Returns:
        Seconds, to the system's clock tick (usually 10 ms); None where there is no /proc, or the process is gone.
    """
    processes = _processes()
    tree = _tree(processes, os.getpid() if root is None else root)
    return sum(processes[pid].ticks for pid in tree) / os.sysconf("SC_CLK_TCK") if tree else None


def grandchildren_cpu_seconds() -> float | None:
    """User and system time of what the children of this process have started: with Spark, the JVM's Python workers.

    Returns:
        Seconds; None where there is no /proc. It falls when one of them ends.
    """
    processes, me = _processes(), os.getpid()
    if me not in processes:
        return None
    below = [pid for pid in _tree(processes, me) if pid != me and processes[pid].parent != me]
    return sum(processes[pid].ticks for pid in below) / os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """A process and its living descendants; none where there is no /proc, or the process is gone."""
    return _tree(_processes(), root)


def _tree(processes: dict[int, _Process], root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found = [root] if root in processes else []
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _processes() -> dict[int, _Process]:
    return {pid: _Process(int(fields[1]), sum(int(field) for field in fields[11:15])) for pid, fields in proc_stats()}
