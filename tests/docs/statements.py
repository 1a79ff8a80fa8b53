"""Statements of SQL in pages of the docs, with the engine that they are for.

An HTML comment before a block of SQL names its engine: `<!-- sql: spark -->`. Calls of `spark.sql` in blocks of Python
and of `sql` in a command `frazil shell -c` are Spark's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENGINES = frozenset({"spark", "postgres", "duckdb"})
_SQL = re.compile(r"^(?:<!-- sql: (?P<engine>\w+) -->\n\n)?```sql\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^frazil shell -c '(?P<text>[^'\n]+)'$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a page.

    Attributes:
        page: Path of the page.
        line: Number of the line of its block.
        engine: One of `ENGINES`; empty if the page names none.
        text: The statement, without comments and semicolon.
    """

    page: Path
    line: int
    engine: str
    text: str


def statements(page: Path) -> list[Statement]:
    """The statements of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return sorted((Statement(page, text.count("\n", 0, at) + 1, *found) for at, *found in _found(text)), key=_line)


def python_blocks(page: Path) -> list[str]:
    """The blocks of Python of a page."""
    return [block["text"] for block in _PYTHON.finditer(page.read_text(encoding="utf-8"))]


def _line(statement: Statement) -> int:
    return statement.line


def _found(text: str) -> Iterator[tuple[int, str, str]]:
    for block in _SQL.finditer(text):
        for statement in _COMMENT.sub("", block["text"]).split(";"):
            if statement.strip():
                yield block.start("text"), block["engine"] or "", statement.strip()
    for code in (*_PYTHON.finditer(text), *_COMMAND.finditer(text)):
        for statement in _spark_calls(ast.parse(code["text"])):
            yield code.start("text"), "spark", statement


def _spark_calls(code: ast.Module) -> Iterator[str]:
    """Texts that code gives to `spark.sql` or `sql`."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("spark.sql", "sql"):
            yield ast.literal_eval(node.args[0])
