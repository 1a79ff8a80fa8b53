"""A page of the docs as a list of actions: files to write, commands to run with their output.

A page shows commands in fenced blocks of the language `console`. A line that begins with `$ ` is a command; a
backslash at its end joins the next line. The lines below it, up to the next command, are its output. A line `...`
stands for any number of lines of output. A block with other content is a file if its fence has a title:

    ```yaml title="streams/orders.yaml"

HTML comments, which no reader sees, steer what a test does:

    <!-- run: background -->   the next block's command runs on until the page ends; its output has to appear
    <!-- run: no -->           the next block is not run
    <!-- run: status 1 -->     the next block's last command ends with this status
    <!-- run: hidden COMMAND --> a command that readers need not type here
    <!-- run: after tutorial.md -->  all that another page of this folder does comes first
    <!-- run: with kafka registry -->  services that the page needs, see `worlds.py`
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)(?: +title=\"(?P<title>[^\"]+)\")?[^\n`]*$")
_DIRECTIVE = re.compile(r"^\s*<!-- run: (?P<words>.+?) -->\s*$")


@dataclass(frozen=True, slots=True)
class File:
    """A file that the page tells its reader to write; `path` is relative to the reader's current folder."""

    line: int
    path: str
    text: str


@dataclass(slots=True)
class Command:
    """A command of the page, with the output that the page shows.

    Args:
        line: Line number in the page.
        text: What is typed, as one line of a shell.
        output: Lines that are shown below it.
        background: True if the command runs until the page ends.
        hidden: True if readers do not see it.
        status: Exit status that it ends with.
    """

    line: int
    text: str
    output: list[str] = field(default_factory=list)
    background: bool = False
    hidden: bool = False
    status: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """A page's actions in their order, and the services that it needs."""

    path: Path
    services: tuple[str, ...]
    actions: tuple[File | Command, ...]

    @property
    def commands(self) -> list[Command]:
        """The commands alone."""
        return [action for action in self.actions if isinstance(action, Command)]


def read_page(path: Path) -> Page:
    """Read a page.

    Raises:
        ValueError: A directive is unknown, or a block is not closed.
    """
    actions: list[File | Command] = []
    services: tuple[str, ...] = ()
    directive, status = "", 0
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if match := _DIRECTIVE.match(line):
            verb, _, rest = match["words"].partition(" ")
            if verb == "with":
                services = tuple(rest.split())
            elif verb == "after":
                actions += read_page(path.with_name(rest)).actions
            elif verb == "hidden":
                actions.append(Command(number, rest, hidden=True))
            elif verb in ("background", "no"):
                directive = verb
            elif verb == "status":
                status = int(rest)
            else:
                raise ValueError(f"{path}:{number}: unknown directive {verb!r}")
        elif match := _FENCE.match(line):
            start, indent = number, match["indent"]
            while number < len(lines) and lines[number].strip() != "```":
                number += 1
            if number == len(lines):
                raise ValueError(f"{path}:{start}: the block is not closed")
            block = [text.removeprefix(indent) for text in lines[start:number]]
            number += 1
            if directive != "no":
                if match["language"] == "console":
                    commands = _commands(block, start + 1, background=directive == "background")
                    commands[-1].status = status
                    actions += commands
                elif match["title"]:
                    actions.append(File(start, match["title"], "\n".join(block) + "\n"))
            directive, status = "", 0
    return Page(path, services, tuple(actions))


def _commands(block: list[str], first_line: int, *, background: bool) -> list[Command]:
    commands: list[Command] = []
    continued = False
    for number, line in enumerate(block, first_line):
        if continued:
            commands[-1].text += " " + line.strip().removesuffix("\\").strip()
            continued = line.endswith("\\")
        elif line.startswith("$ "):
            commands.append(Command(number, line[2:].removesuffix("\\").strip(), background=background))
            continued = line.endswith("\\")
        elif commands:
            commands[-1].output.append(line)
    return commands
