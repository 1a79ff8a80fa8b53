"""Count of the docs: what is a word, a sentence and a paragraph of a Markdown page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.words import Counts, count_docs, paragraphs, sentences, word_count

PAGE = """\
# A heading is no sentence

One sentence over
two lines. Another one, with `code.py` and [a link](where.md#it)!

- an item without a full stop
- two sentences here. The second.

| a table | has no sentences |
|---|---|

```
code. is no. prose.
```

> Quoted as e.g. Kafka does.
"""


def test_paragraphs_are_joined_lines_and_items() -> None:
    assert paragraphs(PAGE) == [
        "One sentence over two lines. Another one, with `code.py` and a link!",
        "an item without a full stop",
        "two sentences here. The second.",
        "Quoted as e.g. Kafka does.",
    ]


def test_sentences_end_at_full_stops_before_a_capital() -> None:
    assert sentences(PAGE) == [
        "One sentence over two lines.",
        "Another one, with `code.py` and a link!",
        "an item without a full stop",
        "two sentences here.",
        "The second.",
        "Quoted as e.g. Kafka does.",
    ]


@pytest.mark.parametrize(("text", "words"), [("", 0), ("one two", 2), ("a – b", 2), ("| 1 | |", 1)])
def test_a_word_has_a_letter_or_a_digit(text: str, words: int) -> None:
    assert word_count(text) == words


def test_pages_are_counted_together(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(PAGE, encoding="utf-8")
    assert count_docs(sorted(tmp_path.glob("*.md"))) == Counts(2, 76, 12, 5.0, 6.9)
    (tmp_path / "c.md").write_text("", encoding="utf-8")
    assert count_docs([tmp_path / "c.md"]) == Counts(1, 0, 0, 0, 0)
