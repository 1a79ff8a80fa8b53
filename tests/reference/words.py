"""Count of the docs: words, pages, and the length of sentences, without the generated pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

_FENCE = re.compile(r"^```.*?^```\s*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(*])")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs)\.$")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted.

    Attributes:
        pages: Markdown files.
        words: Words of prose, lists and tables; none of code blocks.
        sentences: Sentences of prose and lists; none of tables and headings.
        median: Words of the middle sentence.
        p90: Words that nine of ten sentences do not exceed.
    """

    pages: int
    words: int
    sentences: int
    median: float
    p90: float


def word_count(text: str) -> int:
    """Words of a text: what blanks separate and has a letter or a digit."""
    return sum(1 for word in text.split() if _WORD.search(word))


def paragraphs(page: str) -> list[str]:
    """Paragraphs and list items of a Markdown page, without code blocks, headings, tables and pictures."""
    found: list[str] = []
    fresh = True
    for line in _LINK.sub(r"\1", _FENCE.sub("", page)).split("\n"):
        text = re.sub(r"^(>|[-*+]|\d+\.)\s+", "", line.strip())
        if not text or text.startswith(("#", "|")):
            fresh = True
            continue
        if fresh or text != line.strip():
            found.append(text)
        else:
            found[-1] += f" {text}"
        fresh = False
    return found


def sentences(page: str) -> list[str]:
    """Sentences of a Markdown page."""
    found: list[str] = []
    for paragraph in paragraphs(page):
        joined = ""
        for part in _END.split(paragraph):
            joined = f"{joined} {part}".strip()
            if not _ABBREVIATION.search(joined):
                found.append(joined)
                joined = ""
        if joined:
            found.append(joined)
    return [sentence for sentence in found if word_count(sentence)]


def count_docs(pages: Sequence[Path]) -> Counts:
    """Count the pages."""
    texts = [path.read_text(encoding="utf-8") for path in pages]
    lengths = [word_count(sentence) for text in texts for sentence in sentences(text)]
    words = sum(word_count(_LINK.sub(r"\1", _FENCE.sub("", text))) for text in texts)
    p90 = round(quantiles(lengths, n=10, method="inclusive")[-1], 1) if len(lengths) > 1 else sum(lengths)
    return Counts(len(texts), words, len(lengths), median(lengths) if lengths else 0, p90)
