"""How pages of the docs are read as files and commands, and how shown output is compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.comparison import difference, masked
from tests.docs.page import Command, File, read_page
from tests.docs.reader import ROOT, Reader
from tests.docs.statements import ENGINES, python_blocks, statements

PAGE = """\
# Page

<!-- run: with kafka -->

```yaml title="streams/orders.yaml"
stream: orders
```

```console
$ cat streams/orders.yaml
stream: orders
$ printf 'a\\nb\\nc\\n' && \\
    echo d
a
...
d
```

<!-- run: no -->

```console
$ exit 9
```

<!-- run: hidden true -->
<!-- run: background -->

```console
$ echo ready; sleep 600
ready
```

```python
not a command
```
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def test_reads_files_commands_and_directives(tmp_path: Path) -> None:
    page = read_page(written(tmp_path, PAGE))
    assert page.services == ("kafka",)
    file, cat, joined, hidden, background = page.actions
    assert file == File(5, "streams/orders.yaml", "stream: orders\n")
    assert cat == Command(10, "cat streams/orders.yaml", ["stream: orders"])
    assert joined == Command(12, "printf 'a\\nb\\nc\\n' && echo d", ["a", "...", "d"])
    assert isinstance(hidden, Command) and hidden.hidden and hidden.text == "true"
    assert isinstance(background, Command) and background.background


def test_a_page_may_go_on_where_another_one_ends(tmp_path: Path) -> None:
    written(tmp_path, PAGE).rename(tmp_path / "first.md")
    page = read_page(written(tmp_path, "<!-- run: after first.md -->\n\n```console\n$ echo last\nlast\n```\n"))
    assert page.actions == (*read_page(tmp_path / "first.md").actions, page.commands[-1])
    assert page.commands[-1].text == "echo last"


@pytest.mark.parametrize("text", ["<!-- run: twice -->\n", "```console\n$ true\n"])
def test_refuses_what_it_does_not_know(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md:1"):
        read_page(written(tmp_path, text))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["landed 5 rows in 3.2 s"], ["landed 5 rows in 11 s"], True),
        (["landed 5 rows in 3.2 s"], ["landed 6 rows in 3.2 s"], False),
        (["last commit 2026-11-30 10:00:00 UTC"], ["last commit 2027-01-01 00:00:01 UTC"], True),
        (["snapshot 1234567890123456789"], ["snapshot 9876543210987654321"], True),
        (["a", "...", "d"], ["a", "b", "c", "d"], True),
        (["a", "...", "d"], ["a", "b", "c"], False),
        (["...", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a  b"], ["a      b"], True),
        (["a"], ["check payments: id_is_set on 18 rows, 11 s", "a"], True),
        (["a"], ["replay payments: 3 of 9, 33%, 1 min, about 2 min left", "a"], True),
        (["a"], ["! check payments: 18 rows", "a"], False),
        (["", "a", ""], ["a"], True),
        (["such as orders-3@2"], ["such as orders-0@17"], True),
        (["on orders-0 [0, 1), orders-2 [0, 3): 4"], ["on orders-1 [0, 4): 4"], True),
        (["seconds   8.4"], ["seconds  11.2"], True),
        (["landed    8"], ["landed   11"], False),
        (["broker on 127.0.0.1:9092"], ["broker on 127.0.0.1:45678"], True),
        (["a.b  would be created  18  1  1  2,110"], ["a.b  would be created  18  1  1  2,098"], True),
        (["a.b  would be created  18  1  1  2,110"], ["a.b  would be created  17  1  1  2,110"], False),
        (["  day=2026-11-30  2  1  6,580"], ["  day=2026-12-01  2  1  6,571"], True),
        (["  day=2026-11-30  2  1  6,580"], ["  day=2026-11-30  2  2  6,580"], False),
    ],
)
def test_compares_lines_without_what_differs_from_run_to_run(shown: list[str], printed: list[str], same: bool) -> None:
    assert (difference(shown, printed) == "") is same


def test_counts_and_names_are_not_masked() -> None:
    assert (
        masked("1,500 rows of 3 tables in orders: 12 dead letters")
        == "1,500 rows of 3 tables in orders: 12 dead letters"
    )


def test_follows_a_page_in_a_folder_of_its_own_and_ends_what_it_started(tmp_path: Path) -> None:
    text = (
        PAGE.replace("<!-- run: with kafka -->\n", "")
        + "\n```console\n$ cd streams\n$ export A=1\n$ cat orders.yaml; echo $A\nstream: orders\n1\n```\n"
    )
    page = read_page(written(tmp_path, text))
    with Reader(tmp_path / "world") as reader:
        assert reader.follow(page) == []
        assert reader._processes()
    assert not reader._processes()


def test_a_command_may_end_with_the_status_that_the_page_says(tmp_path: Path) -> None:
    page = read_page(written(tmp_path, "<!-- run: status 3 -->\n\n```console\n$ true\n$ (echo a; exit 3)\na\n```\n"))
    with Reader(tmp_path / "world") as reader:
        assert reader.follow(page) == []


@pytest.mark.parametrize("command", ["echo b", "echo a; false", "exit 3"])
def test_names_the_command_whose_output_or_status_differs(tmp_path: Path, command: str) -> None:
    page = read_page(written(tmp_path, f"```console\n$ {command}\na\n```\n"))
    with Reader(tmp_path / "world") as reader:
        (problem,) = reader.follow(page)
    assert f"page.md:2: $ {command}" in problem


# How-to pages with commands that no test types, each with the reason; the list may only get shorter.
NOT_TYPED = {
    "certify": "takes minutes; tests/integration/test_certify.py runs it",
    "connect-api": "runs until it is ended; tests/integration/test_connect_api.py asks it",
    "erase-a-person": "Spark's SQL; tests/integration/test_documented_sql.py runs it",
    "rotate-secrets": "restarts all drivers",
    "several-machines": "several machines",
    "take-over-from-connect": "typed in get-started/from-kafka-connect, beside a real sink",
    "upgrade": "two releases; tests/integration/test_earlier_release.py goes on with a former one",
}


def test_how_to_pages_are_typed_but_for_a_list_with_reasons() -> None:
    root = Path(__file__).parents[2]
    pages = sorted((root / "docs" / "how-to").glob("*.md"))
    with_commands = [page for page in pages if any(line.startswith("frazil ") for line in _code(page))]
    untyped = {page.stem for page in with_commands if not [c for c in read_page(page).commands if not c.hidden]}
    assert untyped == {*NOT_TYPED}


def _code(page: Path) -> list[str]:
    """Lines of a page's blocks that are not typed."""
    blocks = re.findall(r"^```([\w-]*)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for language, block in blocks if language in ("", "bash") for line in block.splitlines()]


def test_sql_names_its_engine() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    unknown = [(each.page.name, each.line) for page in pages for each in statements(page) if each.engine not in ENGINES]
    assert not unknown


def test_python_of_pages_compiles() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for block in python_blocks(page):
            compile(block, str(page), "exec")


def test_finds_statements_with_their_engines(tmp_path: Path) -> None:
    text = """\
```sql
SELECT 0
```

<!-- sql: duckdb -->

```sql
SELECT 1;   -- one; or two
SELECT
  2
```

```python
spark.sql("SELECT 3")
```

```
frazil shell -c 'sql("SELECT 4")'
```
"""
    found = statements(written(tmp_path, text))
    assert [(each.line, each.engine, each.text) for each in found] == [
        (2, "", "SELECT 0"),
        (8, "duckdb", "SELECT 1"),
        (8, "duckdb", "SELECT\n  2"),
        (14, "spark", "SELECT 3"),
        (18, "spark", "SELECT 4"),
    ]
