"""Process usage, read from /proc while a run goes on: CPU and memory of the pipeline and the broker."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.versus.measurement import Reading
from jobs.base.system.cpu import process_tree, tree_cpu_seconds

_EVERY_SECONDS = 0.2
# The kernel walks all pages of a process to tell what it shares.
_MEMORY_EVERY = 10
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


class UsageSampler:
    """Takes a reading five times a second for the length of a block.

    What was used stays used: when Spark ends its Python workers, nobody waits for them, and their time is in no process
    any more. So what a reading lacks of the one before is added to it, and to all that follow.

    Args:
        pid: The pipeline's first process.
        broker: The broker's process.

    Attributes:
        readings: The readings so far, in order.
    """

    def __init__(self, pid: int, broker: int) -> None:
        self.readings: list[Reading] = []
        self._pid: int = pid
        self._broker: int = broker
        self._enough: threading.Event = threading.Event()
        self._thread: threading.Thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        number, before, gone = 0, 0.0, 0.0
        while True:
            now, cpu, broker_cpu = time.time(), tree_cpu_seconds(self._pid), tree_cpu_seconds(self._broker)
            if cpu is not None and broker_cpu is not None:
                gone += max(0.0, before - cpu)
                before = cpu
                memory = memory_of(self._pid) if number % _MEMORY_EVERY == 0 else None
                self.readings.append(Reading(now, cpu + gone, broker_cpu, memory))
            number += 1
            if self._enough.wait(_EVERY_SECONDS):
                return


def memory_of(root: int) -> int:
    """Bytes in memory of a process and all below it; a page that several share counts once in all."""
    total = 0
    for pid in process_tree(root):
        with contextlib.suppress(OSError):
            found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
            total += int(found.group(1)) * 1024 if found else 0
    return total
