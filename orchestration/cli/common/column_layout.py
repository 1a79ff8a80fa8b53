"""Layout of a table for a width: as it is, without what may be left out, with folded texts, or as paragraphs. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

GAP = 2
"""Columns of the terminal between two columns of a table."""
# A word up to this length is not broken: names of streams, tables and columns are read and copied as a whole.
_LONGEST_WORD = 28
# A longer word is broken behind these: names of properties, paths and lists are still read piece by piece.
_PIECE = re.compile(r"[^./\-_=:,;)}\]]*[./\-_=:,;)}\]]*")


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a table.

    Attributes:
        widths: Width of each column that is shown, by name; None where rows are shown as paragraphs.
        left_out: Names of columns for which there is no room.
    """

    widths: dict[str, int] | None
    left_out: tuple[str, ...] = ()


def lay_out(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    text: Collection[str],
    optional: Sequence[str] = (),
    whole: bool = False,
) -> Layout:
    """The layout of a table that is at most so wide.

    First columns are left out that may be; then texts are folded between words; if neither is enough, rows are shown as
    paragraphs.

    Args:
        names: Names of the columns, each once.
        rows: A cell for each column.
        text: Columns that may be folded; numbers never are.
        optional: Columns that may be left out, the first of them first.
        whole: Whether long words are broken at separators only; otherwise also within, if nothing else helps.
    """
    cells = {name: [name, *(row[index] for row in rows)] for index, name in enumerate(names)}
    natural = {name: max(map(cell_len, column)) for name, column in cells.items()}
    left_out = list[str]()
    for name in ("", *(each for each in optional if each in cells)):
        left_out += [name] if name else []
        shown = {each: natural[each] for each in names if each not in left_out}
        if _total(shown) <= width:
            return Layout(shown, tuple(left_out))
    for gone in ((), tuple(left_out)):
        shown = {each: natural[each] for each in names if each not in gone}
        least = {each: _least_width(cells[each], whole=whole) if each in text else shown[each] for each in shown}
        if _total(least) <= width:
            return Layout(_folded(shown, least, width), gone)
    return Layout(None)


def paragraphs(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows as paragraphs: the first cell as a heading, the others behind their names, within the width."""
    for row in rows:
        yield row[0]
        said = " · ".join(f"{name} {cell}" for name, cell in zip(names[1:], row[1:], strict=True) if cell)
        yield from textwrap.wrap(
            said, max(width, 20), initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + GAP * max(len(widths) - 1, 0)


def fold_text(text: str, width: int) -> str:
    """A text in lines of at most this width, broken between words; a word that is longer is broken at separators."""
    first, *words = text.split(" ")
    *lines, line = _broken(first, width)
    for word in words:
        joined = f"{line} {word}"
        if cell_len(joined) <= width:
            line = joined
            continue
        lines += [line] if line.strip() else []
        *full, line = _broken(word, width)
        lines += full
    return "\n".join([*lines, line])


def _broken(word: str, width: int) -> list[str]:
    """A word in lines: behind separators where it can be, else where a line is full."""
    lines = [""]
    for piece in _PIECE.findall(word):
        parts = [piece] if cell_len(piece) <= width else list(piece)
        for part in parts:
            if cell_len(lines[-1] + part) > width and lines[-1]:
                lines.append("")
            lines[-1] += part
    return lines


def _least_width(cells: Sequence[str], *, whole: bool) -> int:
    words = [word for cell in cells for word in cell.split()]
    least = min(_LONGEST_WORD, max(map(cell_len, words), default=1))
    long = [word for word in words if cell_len(word) > _LONGEST_WORD] if whole else []
    return max([least, *(cell_len(piece) for word in long for piece in _PIECE.findall(word))])


def _folded(natural: dict[str, int], least: dict[str, int], width: int) -> dict[str, int]:
    """The widths, the widest text shortened first, so that all fit."""
    widths = dict(natural)
    for _ in range(_total(natural) - width):
        widest = max((name for name in widths if widths[name] > least[name]), key=widths.__getitem__)
        widths[widest] -= 1
    return widths
