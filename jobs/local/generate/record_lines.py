"""Lines of a file of text records, as `frazil init` looks at them and `frazil generate` sends them."""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Iterator
from pathlib import Path

from jobs.base.errors import FrazilError

# First bytes of files whose lines are no records, with what they are and the command that makes text of them.
_OTHERS = {
    codecs.BOM_UTF16_LE: ("UTF-16", "iconv -f UTF-16 -t UTF-8 {file} > {text}, and name that file"),
    codecs.BOM_UTF16_BE: ("UTF-16", "iconv -f UTF-16 -t UTF-8 {file} > {text}, and name that file"),
    b"\x1f\x8b": ("compressed with gzip", "gunzip -c {file} > {text}, and name that file"),
}


def record_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file that are not blank, stripped, without the mark that some editors begin UTF-8 with.

    Raises:
        FrazilError: The file cannot be read, or is not UTF-8 text.
    """
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines):
                if number == 0:
                    _refuse_others(file, line)
                if text := (line if number else line.removeprefix(codecs.BOM_UTF8)).strip():
                    yield text
    except OSError as problem:
        raise FrazilError(f"{file} cannot be read: {problem.strerror}", fix="name another file") from None


def _refuse_others(file: Path, line: bytes) -> None:
    for start, (name, command) in _OTHERS.items():
        if line.startswith(start):
            raise FrazilError(f"{file} is {name}; records are lines of UTF-8 text.", fix=rewriting(command, file))


def rewriting(command: str, file: Path) -> str:
    """A command that writes another file beside this one.

    Args:
        command: The command, with `{file}` and `{text}` for the two.
        file: The file that it reads.
    """
    target = file.with_name(f"{file.name.partition('.')[0]}-lines.jsonl")
    return command.format(file=shlex.quote(str(file)), text=shlex.quote(str(target)))
