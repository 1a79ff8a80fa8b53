"""Writes the output of a page's commands into the page: `python -m tests.docs.record docs/get-started/tutorial.md`.

Output that still agrees, times and ids masked, stays as it is, with its `...` lines. Read what changed before you
commit it.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.comparison import difference
from tests.docs.page import Command, File, Page, read_page
from tests.docs.reader import Reader
from tests.docs.worlds import world


def record(path: Path) -> None:
    """Run a page's commands and replace the output that differs."""
    page = read_page(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    outputs: list[tuple[Command, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        names = stack.enter_context(world(page.services, Path(folder)))
        reader = stack.enter_context(Reader(Path(folder), names))
        for action in page.actions:
            if isinstance(action, File):
                reader.follow(Page(path, (), (action,)))
                continue
            began = time.monotonic()
            status, printed = reader.run(action)
            print(f"{action.line}: $ {action.text}  ({status}, {time.monotonic() - began:.1f} s)", flush=True)
            if status not in (None, action.status):
                print("\n".join(printed), flush=True)
            if not action.background and not action.hidden and difference(action.output, printed):
                outputs.append((action, printed))
    for command, printed in reversed(outputs):
        first = command.line
        while lines[first - 1].endswith("\\"):
            first += 1
        end = first + len(command.output)
        # An empty line separates the output from the next command of the block.
        lines[first:end] = [*printed, ""] if printed and not lines[end].lstrip().startswith("```") else printed
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(Path(name))
